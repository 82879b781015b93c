"""Kernels: losses and LSTM layers with hand-written gradients."""
