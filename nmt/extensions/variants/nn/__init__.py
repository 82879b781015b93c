"""Layers that the variants use."""
