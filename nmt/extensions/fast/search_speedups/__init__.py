"""What makes searches faster: one file each."""
