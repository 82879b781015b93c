"""Mixers, the parts of a Transformer layer that read other positions of the same text."""
