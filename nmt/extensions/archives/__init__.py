"""Texts in tar and zip archives, and in sgm files, read as streams."""
