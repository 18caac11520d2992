"""Where policies meet environments: players, and the loop that steps both."""
