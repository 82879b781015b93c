"""Document formats, one per file."""
