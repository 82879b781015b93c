"""Additional metrics, and comparisons of systems."""
