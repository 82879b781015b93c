"""Preparations: an extended vocabulary."""
