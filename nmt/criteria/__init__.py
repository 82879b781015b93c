"""Training criteria, one file each. A criterion returns sums by name, each with its count."""
