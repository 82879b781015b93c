"""Kernels: losses and LSTM layers whose gradients are written by hand."""
