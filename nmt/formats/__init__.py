"""Document formats: the texts in a document are translated, and everything else is kept."""
