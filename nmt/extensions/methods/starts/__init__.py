"""Starts: train parts of a model, adapters, a deeper model, or with the state of another training."""
