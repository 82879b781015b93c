"""Feed-forward networks: gated linear units and mixtures of experts."""
