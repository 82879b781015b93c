"""Layers that models are built of: torch only."""
