"""Tokenizers, one per file."""
