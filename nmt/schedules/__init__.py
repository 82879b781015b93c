"""Learning-rate schedules, one per file. A schedule is a function of the update number."""
