"""Feed-forward networks of the Transformer's layers."""
