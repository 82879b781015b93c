"""The command of the searches."""
