"""Prepared data: files on disk (numpy only), batch plans, and batches as tensors."""
