"""Evaluations: what `nmt evaluate` prints about translations, instead of one score per metric."""
