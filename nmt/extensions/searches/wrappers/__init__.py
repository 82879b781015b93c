"""Wrappers around the built-in search."""
