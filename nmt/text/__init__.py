"""Text: from bytes to ids and back. Strings and numpy only; torch is never imported here."""
