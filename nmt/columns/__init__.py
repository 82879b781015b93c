"""Kinds of columns: extra data for training pairs, in addition to their text."""
