"""A server of translations: requests of all clients in one queue, and the protocols that clients speak."""
