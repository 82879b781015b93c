"""Document formats: the texts of documents are translated, and everything else is kept."""
