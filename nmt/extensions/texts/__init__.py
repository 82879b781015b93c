"""Translation of any text: several sentences, tags, glossaries, and repairs of failed translations."""
