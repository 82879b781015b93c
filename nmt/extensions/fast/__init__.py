"""Faster implementations of computations in the core."""
