"""Texts and the prompts that are cut from them."""
