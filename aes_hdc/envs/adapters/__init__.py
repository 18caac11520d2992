"""Adapters to `gymnasium.Env` and from it."""
