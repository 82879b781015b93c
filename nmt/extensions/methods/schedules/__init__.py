"""Learning-rate schedules that depend on more than the number of the update."""
