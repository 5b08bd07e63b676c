"""Choices by position: items, the orders that their options are asked in, and what a place adds to being chosen.

from posbias.choice import choose

answer = choose(lambda prompt: my_model(prompt), "items.jsonl")
print(*answer.sentences(), sep="\n")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
