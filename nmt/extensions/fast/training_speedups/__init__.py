"""Speedups of training, one file each."""
