"""Trainings and translations with many settings."""
