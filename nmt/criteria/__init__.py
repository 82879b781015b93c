"""Training criteria, one per file. A criterion returns sums by name, each with its count."""
