"""What documents are as texts."""
