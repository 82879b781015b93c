"""Metrics of translation quality, one file each; checks of test sets."""
