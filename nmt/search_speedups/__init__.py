"""Speedups of searches. The core defines only their interface."""
