"""The status of training runs, and their losses as metrics.jsonl has them."""
