"""The zoo's models, one per file."""
