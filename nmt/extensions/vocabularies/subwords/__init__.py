"""Subword methods, one per file."""
