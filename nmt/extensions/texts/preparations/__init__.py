"""What `nmt prepare` says of text steps."""
