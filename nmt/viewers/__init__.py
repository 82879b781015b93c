"""Viewers, which receive the translations of `nmt translate`. The core defines only their interface."""
