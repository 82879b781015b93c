"""Feed-forward networks for the Transformer's layers, one file each."""
