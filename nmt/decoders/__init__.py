"""Decoders, one per file. A decoder is a search that works with any Scorer."""
