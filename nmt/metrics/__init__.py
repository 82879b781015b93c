"""Metrics of translation quality, one per file."""
