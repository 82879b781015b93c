"""Ways to split prepared text into tokens, and to learn the vocabularies they need."""
