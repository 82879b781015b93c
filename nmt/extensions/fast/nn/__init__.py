"""Faster matrix products and kernels for computations in the core."""
