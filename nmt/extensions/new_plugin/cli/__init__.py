"""The command `nmt new-plugin`."""
