"""Storages that read texts from archives, sgm files and columns of tables."""
