"""The supported toolkits, and nmt's own model folders."""
