"""Searches besides greedy and beam search, with filters, shortlists and re-ranking."""
