"""Filters, which forbid tokens in the translations of some requests."""
