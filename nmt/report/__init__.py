"""The status of training runs, and the losses that they report."""
