"""Texts in tar and zip archives, read as streams."""
