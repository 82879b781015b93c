"""CTranslate2 as a toolkit: import and export of its models."""
