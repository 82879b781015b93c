"""Evaluations: what `nmt evaluate` prints of translations in place of a score for each metric."""
