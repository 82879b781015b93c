"""Positions that self-attention knows of itself."""
