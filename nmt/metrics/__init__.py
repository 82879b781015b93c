"""Metrics of translation quality, one file each."""
