"""The systems of Table 2, and language models."""
