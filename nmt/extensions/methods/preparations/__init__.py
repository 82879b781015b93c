"""Preparations: columns that are learnt from the data."""
