"""Previews: what a training would be, in place of it."""
