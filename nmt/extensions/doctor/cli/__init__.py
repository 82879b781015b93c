"""The commands that find and remove faults of a corpus."""
