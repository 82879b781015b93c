"""Training methods beyond plain training."""
