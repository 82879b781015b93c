"""Kernels, faster replacements of methods. If no kernel fits, a method computes with torch's operations."""
