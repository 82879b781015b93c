"""Tokenizers, which put spaces between the words of a text before it is split into subwords."""
