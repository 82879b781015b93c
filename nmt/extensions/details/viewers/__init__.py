"""The viewer that prints the details of translations."""
