"""Parts of a layer that a text's length changes, and those that are the same in any text."""

from typing import Any, Protocol, Self, runtime_checkable


@runtime_checkable
class OfLength(Protocol):
    """What says what it is in a text of so many tokens; an encoding of one's own need not."""

    def at(self, tokens: int) -> Any: ...


class AnyLength:
    """What is the same in texts of any length."""

    def at(self, tokens: int) -> Self:
        """The same for any length of text."""
        return self
