"""Mixers: how a layer of the Transformer reads other positions of its own text."""
