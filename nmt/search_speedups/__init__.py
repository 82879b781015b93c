"""Speedups of searches. The core defines what one is, and has none itself."""
