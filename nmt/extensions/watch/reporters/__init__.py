"""Reporters: a display on a terminal, TensorBoard, and Weights & Biases."""
