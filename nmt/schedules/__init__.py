"""Learning-rate schedules, one file each. A schedule is a function of the update number."""
