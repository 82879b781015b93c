"""Translation of lines of text with a trained model."""
