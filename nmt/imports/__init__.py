"""Import of models of other toolkits as model folders."""
