"""Ways to split prepared text into tokens, and to learn their vocabularies."""
