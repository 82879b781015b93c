"""What is printed with a translation: its word alignment, scores of words, confidence; and replaced unknown words."""
