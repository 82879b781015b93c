"""Commands that look up components, presets, models and recipes."""
