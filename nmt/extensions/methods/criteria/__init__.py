"""Training criteria, one per file. A criterion returns named sums, each with its count."""
