"""The subword method of imported models."""
