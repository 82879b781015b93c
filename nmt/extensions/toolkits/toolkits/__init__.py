"""Toolkits whose models are read or written, and our own model folders."""
