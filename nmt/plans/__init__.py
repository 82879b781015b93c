"""Plans of batches: the order in which a training reads its data."""
