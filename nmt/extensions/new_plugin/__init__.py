"""The command that writes a plug-in to start from."""
