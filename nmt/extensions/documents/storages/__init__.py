"""A storage that recognises documents among plain texts."""
