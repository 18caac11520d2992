"""The shared model core; it knows no reward and no environment."""
