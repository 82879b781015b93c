"""Layers from which models are built. They depend only on torch."""
