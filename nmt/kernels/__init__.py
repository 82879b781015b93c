"""Kernels, which are faster replacements for methods. A method without a suitable kernel uses torch's operations."""
