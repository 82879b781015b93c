"""Kinds of noise for training data, one file each."""
