"""Learning-rate schedules that need more than the number of the update."""
