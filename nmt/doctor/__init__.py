"""What is wrong with a corpus, before a week of training on it."""
