"""Preparations: changes to the data that `nmt prepare` writes."""
