"""Comparisons with a peer or a limit, in one run; nothing imports them."""
