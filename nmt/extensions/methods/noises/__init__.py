"""Kinds of noise for training data, one per file."""
