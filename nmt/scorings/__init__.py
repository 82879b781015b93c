"""Scorings: what `nmt score` does with pairs of lines in place of printing the score of each."""
