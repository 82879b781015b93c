"""Preparations: changes to the data that `nmt prepare` makes."""
