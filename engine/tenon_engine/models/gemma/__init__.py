"""DiffusionGemma: a causal encoder for what stands before a hole, and a decoder that denoises a canvas of noise."""
