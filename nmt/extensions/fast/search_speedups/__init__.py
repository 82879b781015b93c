"""Speedups of searches, one file each."""
