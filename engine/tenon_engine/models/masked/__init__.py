"""Masked diffusion models (absorbing noise): LLaDA, Dream and its kin, Open-dCoder, on transformers' own blocks."""
