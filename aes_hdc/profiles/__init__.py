"""Finds which meta-abilities an environment exercises, from recorded episodes."""
