"""Archives as storages of texts."""
