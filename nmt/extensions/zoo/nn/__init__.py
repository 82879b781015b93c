"""Layers that the zoo's models use."""
