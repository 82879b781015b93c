"""Noise of training data: one file each."""
