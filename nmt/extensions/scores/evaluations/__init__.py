"""Evaluations of systems: tests of significance, and the definitions of BLEU."""
