"""Checkpoints of the Hugging Face hub: found, checked, placed on a device, and given to the family that reads them."""
