"""Reporters: a live display, an estimate of the run, TensorBoard, and Weights & Biases."""
