"""Ways to divide prepared text into tokens, and to learn their vocabularies."""
