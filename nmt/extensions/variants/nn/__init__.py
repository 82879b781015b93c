"""The layers of the variants."""
