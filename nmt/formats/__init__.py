"""Formats of documents, whose texts are translated and everything else is kept."""
