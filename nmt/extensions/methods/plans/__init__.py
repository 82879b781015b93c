"""Batch plans: corpora mixed with weights."""
