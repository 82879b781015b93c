"""Viewers: drawings of translations."""
