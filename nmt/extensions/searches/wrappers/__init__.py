"""Wrappers of the built-in search."""
