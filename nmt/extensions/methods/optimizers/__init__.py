"""Optimizers besides Adam, one per file."""
