"""Metrics of translation quality, one file each; paired significance tests; checks of test sets."""
