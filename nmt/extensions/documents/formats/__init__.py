"""Formats of translators' documents, a file each."""
