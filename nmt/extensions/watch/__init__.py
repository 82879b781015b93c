"""Watching runs: display, history, curves, pictures and Table 2."""
