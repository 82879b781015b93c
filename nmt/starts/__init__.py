"""Starts, which change a newly built model before it is trained."""
