"""Formats of weights: one file each."""
