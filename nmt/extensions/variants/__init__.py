"""Variants of the Transformer's components: mixers, feed-forward networks and positions."""
