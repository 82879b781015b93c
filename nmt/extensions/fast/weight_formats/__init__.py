"""Weight formats, one per file."""
