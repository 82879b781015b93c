"""Training criteria: one file each. A criterion returns a sum over target tokens, in nats."""
