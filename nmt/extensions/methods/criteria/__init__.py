"""Training criteria, one file each. A criterion returns named sums, each with its count."""
