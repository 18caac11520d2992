"""From finished rollouts to parameter updates and policy gradients."""
