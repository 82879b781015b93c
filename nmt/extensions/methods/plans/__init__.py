"""The batch plan for corpora mixed by weight."""
