"""Asking for choices: the prompts of items in their orders, and what answers or scores decide.

from posbias.choice import ask_choices, read_items

decisions = ask_choices(lambda prompt: my_model(prompt), read_items("items.jsonl"))
"""

import re

from posbias.choice.items import Kind
from posbias.core.spec import Count, NaturalNumber, value

LABELLED = ("question", "judge")
"""Kinds of items whose options are shown with labels."""
AGAIN = 20
"""So many items are asked in one order twice, unless another number is wanted: the floor of flips."""
_TIE = re.compile(r"(?i)\b(?:tie|tied|equal(?:ly)?|both|neither|draw)\b")


@value
class ChoiceJob:
    """What is asked of a model about items: all that decides the prompts but for the items themselves.

    `orders`: by item at most; None for all that a design has (`orders_of`). `again`: items whose first order is
    asked a second time. `criteria`: what a judge or rater goes by.
    """

    kind: Kind
    orders: Count | None = None
    again: NaturalNumber = AGAIN
    criteria: str = ""
    most: Count | None = None
