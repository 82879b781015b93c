"""Optimizers besides Adam, one file each."""
