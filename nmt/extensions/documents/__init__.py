"""Document formats: the text of a document is translated, and everything else in it is kept."""
