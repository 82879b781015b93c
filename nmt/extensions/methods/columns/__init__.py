"""Kinds of columns: numbers of target words, and links between words."""
