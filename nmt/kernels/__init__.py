"""Kernels, which are faster replacements for methods. If no kernel fits, a method uses torch's operations."""
