"""Products and layers that are faster than the core's."""
