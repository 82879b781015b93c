"""Reports of training runs: log lines, metrics.jsonl, the table of systems."""
