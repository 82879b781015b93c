"""Weight formats, one file each."""
