"""The pass that translates texts."""
