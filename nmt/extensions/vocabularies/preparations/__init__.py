"""The preparation that extends a vocabulary."""
