"""Position encodings, which a Transformer adds to embeddings so that it knows the order of tokens."""
