"""Scorings: contrastive test sets and the calibration of confidences."""
