"""The start that fits a model to an extended vocabulary."""
