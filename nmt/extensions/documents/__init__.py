"""Documents of translators: their texts are translated, and everything else in them is kept."""
