"""Checks of a corpus before training: alignment, languages, duplicates, encoding and lengths."""
