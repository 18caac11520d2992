"""What a policy adds to a model: sampling in jit and token log-probabilities."""
