"""One file an experiment; `get_config(arg)` returns its ConfigDict."""
