"""Mixers: variants of self-attention, and what stands in its place in a decoder."""
