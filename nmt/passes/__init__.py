"""Passes: what changes texts on their way to the search and back. A pass is active when one of its options is given."""
