"""Kernels of losses: a loss computes its sums by torch's operations where no kernel fits."""
