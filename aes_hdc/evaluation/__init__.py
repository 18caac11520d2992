"""Turns outcomes of episodes into numbers with intervals."""
