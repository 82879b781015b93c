"""Viewers: pictures of translations."""
