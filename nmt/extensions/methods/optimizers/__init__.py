"""Optimizers beyond Adam: one file each."""
