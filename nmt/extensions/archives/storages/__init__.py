"""Storages for archives, sgm files and columns of tables."""
