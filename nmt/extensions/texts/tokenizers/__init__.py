"""Tokenizers: one file each."""
