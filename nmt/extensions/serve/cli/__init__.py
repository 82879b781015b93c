"""The command `nmt serve`."""
