"""Passes, which change texts before the search and translations after it. A pass is active if one of its options is set."""
