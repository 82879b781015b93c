"""Speedups of training. The core defines only their interface."""
