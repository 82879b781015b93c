"""Engines, which search for translations. `--engine auto` uses the first one that supports the requested options."""
