"""Reporters: receive the log lines and numbers of a training."""
