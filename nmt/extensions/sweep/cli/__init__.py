"""The command `nmt sweep`."""
