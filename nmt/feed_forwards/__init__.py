"""Feed-forward networks for the Transformer's layers, one per file."""
