"""Commands that say what there is: components, presets, models and recipes."""
