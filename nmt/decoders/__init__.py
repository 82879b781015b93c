"""Decoders, in the sense of searches: one file each, over any Scorer."""
