"""Filters: what forbids tokens in the translations of some requests."""
