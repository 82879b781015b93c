"""Prepared data: shards on disk (numpy only), the plan of batches, and batches as tensors."""
