"""Learning-rate schedules that depend on more than the update number."""
