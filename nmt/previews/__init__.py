"""Previews: what `nmt train` can print instead of training."""
