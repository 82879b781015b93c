"""Learning-rate schedules: one file each, pure functions of the update."""
