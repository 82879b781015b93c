"""Faster ways to compute the same: products of a CPU, CUDA graphs, compiled layers; and weights of 8 bits."""
