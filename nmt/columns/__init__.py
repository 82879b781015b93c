"""Kinds of columns: data of the training pairs beside their text."""
