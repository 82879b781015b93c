"""What changes data while `nmt prepare` makes them."""
