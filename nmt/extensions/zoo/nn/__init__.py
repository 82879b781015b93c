"""Layers of the models of the zoo."""
