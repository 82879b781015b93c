"""What makes training faster: one file each."""
