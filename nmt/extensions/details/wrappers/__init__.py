"""The wrapper that computes the details of translations."""
