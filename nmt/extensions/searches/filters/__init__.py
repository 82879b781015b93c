"""The filter of texts to avoid."""
