"""The commands that show runs."""
