"""Products and kernels that compute faster what the core computes."""
