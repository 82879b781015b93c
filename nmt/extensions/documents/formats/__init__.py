"""Document formats, one file each."""
