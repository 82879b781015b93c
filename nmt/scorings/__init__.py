"""Scorings: what `nmt score` can compute from pairs of lines instead of printing the score of each pair."""
