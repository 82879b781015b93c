"""Speedups of searches, one per file."""
