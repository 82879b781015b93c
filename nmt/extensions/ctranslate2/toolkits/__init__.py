"""CTranslate2 as a toolkit whose models are read and written."""
