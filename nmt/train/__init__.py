"""Training: the loop, one update, validation."""
