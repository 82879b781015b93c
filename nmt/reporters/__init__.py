"""Reporters: what receives the lines and numbers of a training."""
