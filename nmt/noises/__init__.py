"""Noise of training data. The core defines what it is, and has none itself."""
