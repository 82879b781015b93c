"""Models, one file each. A model is also a Scorer, so that every search can use it."""
