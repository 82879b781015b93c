"""Checks of texts to score: subwords, blank references, Unicode forms, and the versions of newstest2014."""
