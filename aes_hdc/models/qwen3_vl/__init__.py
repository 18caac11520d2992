"""Qwen3-VL in Flax linen: model, weights and host-side preprocessing."""
