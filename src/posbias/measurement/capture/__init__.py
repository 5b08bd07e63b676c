"""Attention read out of a forward pass that nothing changes."""
