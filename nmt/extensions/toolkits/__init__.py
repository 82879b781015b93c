"""Conversion of models from and to other toolkits."""
