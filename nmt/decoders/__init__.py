"""Decoders, one file each. A decoder is a search that works with any Scorer."""
