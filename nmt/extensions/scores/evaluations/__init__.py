"""Evaluations of systems: significance tests and several definitions of BLEU."""
