"""Ways to divide text into tokens: one file each."""
