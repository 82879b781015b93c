"""Commands that describe components, presets, models and recipes."""
