"""Subwords of imported models."""
