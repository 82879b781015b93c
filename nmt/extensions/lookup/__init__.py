"""Commands that list and describe components, presets, models and recipes."""
