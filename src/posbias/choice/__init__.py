"""Choices by position: items, the orders that their options are asked in, and what a place adds to being chosen.

from posbias.choice import ChoiceEffects, ask_choices, read_items

decisions = ask_choices(lambda prompt: my_model(prompt), read_items("items.jsonl"))
print(*ChoiceEffects(decisions).slots)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
