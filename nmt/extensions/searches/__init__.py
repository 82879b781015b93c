"""Other searches than greedy and beam search, and what narrows or re-ranks them."""
