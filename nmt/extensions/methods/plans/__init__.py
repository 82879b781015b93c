"""Plans of batches: corpora mixed by weights."""
