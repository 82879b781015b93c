"""Text processing, from bytes to token ids and back. It needs only strings and numpy; torch is never imported here."""
