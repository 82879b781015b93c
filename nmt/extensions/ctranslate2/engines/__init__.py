"""CTranslate2 as an engine."""
