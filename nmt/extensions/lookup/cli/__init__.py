"""The commands `nmt describe` and `nmt recipes`."""
