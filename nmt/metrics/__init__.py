"""Metrics of translation quality; paired significance tests; checks of test sets."""
