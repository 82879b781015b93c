"""The pass of texts."""
