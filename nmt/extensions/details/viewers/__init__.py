"""The viewer that prints details of translations."""
