"""Presets: plain sets of options that published systems and the field's small tasks use."""
