"""How many examples a property is tried on."""

from hypothesis import settings


def examples(number: int) -> settings:
    """A decorator: `number` examples, under a profile of fewer than 100 as much fewer, and 10 at least.

    `settings(max_examples=number)` holds under every profile.
    """
    return settings(max_examples=max(10, number * settings().max_examples // 100))
