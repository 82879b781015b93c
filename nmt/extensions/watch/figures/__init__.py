"""Figures that `nmt plot --figure` draws, besides the curves of runs."""
