"""Previews: what a training would need."""
