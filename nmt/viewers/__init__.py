"""Viewers: what sees the translations of `nmt translate`. The core defines what one is, and has none itself."""
