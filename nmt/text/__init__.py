"""Text processing: from bytes to token ids and back. Strings and numpy only; torch is never imported here."""
