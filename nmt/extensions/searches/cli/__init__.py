"""The command that belongs to the searches."""
