"""Kernels of losses: one file each."""
