"""The wrapper that computes details of translations."""
