"""Passes: what changes texts on their way to the search and back. Those whose options are given take part."""
