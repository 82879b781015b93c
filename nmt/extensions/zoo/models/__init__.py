"""The models of the zoo."""
