"""Kinds of columns: data of the training pairs in addition to their text."""
