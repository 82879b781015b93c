"""The commands that find and remove faults in a corpus."""
