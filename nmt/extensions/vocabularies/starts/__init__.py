"""Starts: a model with an extended vocabulary."""
