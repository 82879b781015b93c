"""Preparations: columns that are learned from the data."""
