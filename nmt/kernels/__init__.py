"""Kernels: a method computes by torch's operations where no kernel fits."""
