"""The command that writes a plug-in as a starting point."""
