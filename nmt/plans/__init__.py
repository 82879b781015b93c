"""Batch plans: the order in which training reads its data."""
