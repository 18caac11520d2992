"""One module per family: one kind of state, one renderer, several goals."""
