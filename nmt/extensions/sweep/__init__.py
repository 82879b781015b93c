"""Sweeps: trainings and translations with many settings."""
