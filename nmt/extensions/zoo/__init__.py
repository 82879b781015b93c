"""The systems in the paper's Table 2, and language models."""
