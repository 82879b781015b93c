"""Models, one per file. A model is also a Scorer, so that every search can use it."""
