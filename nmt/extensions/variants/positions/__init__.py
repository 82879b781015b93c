"""Position encodings inside self-attention."""
