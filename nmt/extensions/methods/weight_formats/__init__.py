"""Formats of weights that methods of training save."""
