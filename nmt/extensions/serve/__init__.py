"""A translation server: one queue per model for the requests of all clients, and the protocols that clients speak."""
