"""The commands that find and remove the faults of a corpus."""
