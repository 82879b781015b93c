"""Mixers: variants of self-attention, and replacements for it in a decoder."""
