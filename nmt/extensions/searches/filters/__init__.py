"""The filter for words and phrases to avoid."""
