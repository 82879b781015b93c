"""Previews: what a training would take."""
