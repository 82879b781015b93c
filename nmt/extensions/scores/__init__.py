"""Other metrics, and comparisons of systems."""
