"""Noises for training data, one file each."""
