"""Details that can be printed with a translation: word alignment, word scores, confidence, and replaced unknown words."""
