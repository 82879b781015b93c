"""Reporters, which receive the log lines and numbers of a training run."""
