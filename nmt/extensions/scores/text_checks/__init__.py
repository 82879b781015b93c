"""Checks of texts before scoring: subwords, blank references, Unicode forms, and versions of newstest2014."""
