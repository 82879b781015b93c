"""What goes beyond a vocabulary that was learnt once: further entries, and other segmentations of words."""
