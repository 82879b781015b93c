"""Starts: what changes a newly built model before it is trained."""
