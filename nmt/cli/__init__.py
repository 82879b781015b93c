"""The commands: one file each, imported only when the command is called."""
