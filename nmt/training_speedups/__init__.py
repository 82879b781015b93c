"""Speedups of training. The core defines what one is, and has none itself."""
