"""Previews: what `nmt train` shows instead of training."""
