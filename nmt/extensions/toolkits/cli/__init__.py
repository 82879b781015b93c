"""The commands that convert models."""
