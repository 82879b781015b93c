"""Pictures of attention, beam search and training, as web pages, SVG, PNG or text."""
