"""What `nmt prepare` reports about text steps."""
