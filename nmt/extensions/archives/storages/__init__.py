"""Archives and sgm files as storages of texts."""
