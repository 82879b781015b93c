"""Sweeps: training and translation with many combinations of settings."""
