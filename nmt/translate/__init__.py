"""Translation with a trained model: lines of text in, translations out."""
