"""Noise in training data. The core defines only the interface."""
