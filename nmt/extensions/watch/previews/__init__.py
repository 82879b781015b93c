"""Previews: what a run would need."""
