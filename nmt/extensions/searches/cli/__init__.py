"""The command `nmt shortlist`."""
