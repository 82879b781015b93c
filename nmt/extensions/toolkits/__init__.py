"""Models of other toolkits: reading them as model folders, and writing ours for them."""
