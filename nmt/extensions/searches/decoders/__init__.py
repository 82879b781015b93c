"""The searches, one per file."""
