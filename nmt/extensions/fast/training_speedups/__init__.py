"""Training speedups, one per file."""
