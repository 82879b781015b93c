"""Kinds of columns: numbers for target words, and links between words."""
