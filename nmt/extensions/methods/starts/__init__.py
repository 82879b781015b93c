"""Starts: a part of a model is trained, adapters are, or a deeper model."""
