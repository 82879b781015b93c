"""Engines: what searches for translations. `--engine auto` takes the first that can do what is asked for."""
