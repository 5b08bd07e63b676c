"""What a study claims: a sentence, the quantity it is about, the cells, and a bound.

    claim = "The second layer's recency is weaker at d = 64 than at d = 16"
    quantity = "recency_probability.1"
    of = {"model.dimension" = 16}
    than = {"model.dimension" = 64}
    above = 0.0

`of` selects the combinations that have these values; the claim is about each of them, and holds if it holds for
all. With `than` it is about differences: each combination of `of` minus the one of `than` that agrees with it in
everything that neither names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, FiniteFloat

from posbias.core.errors import InvalidValueError, nearest
from posbias.core.spec import NonNegative, encode, value
from posbias.core.sweeps import leaves, values_at
from posbias.profiles.evidence import Above, Below, Near, Test
from posbias.study.quantities import check_place

BOUNDS = ("above", "below", "equals")
_ROUNDING = 1e-12
Combinations = Sequence[tuple[Mapping[str, Any], Any]]
"""What each combination of a study chooses, and the verb that it makes."""
Pair = tuple[int, int | None]
"""Numbers of two combinations that a difference is between; the second is None for a number by itself."""


@value
class StatedClaim:
    """A sentence about a `quantity` ("name", or "name.0" for one of a list) of some cells, and its bound.

    Exactly one of `above`, `below` (both strict) and `equals` is given, the last up to `tolerance`. Raises
    `InvalidValueError` otherwise.
    """

    claim: str
    quantity: str
    of: Mapping[str, Any] = Field(default_factory=dict)
    than: Mapping[str, Any] | None = None
    above: FiniteFloat | None = None
    below: FiniteFloat | None = None
    equals: FiniteFloat | None = None
    tolerance: NonNegative | None = None

    def __post_init__(self):
        given = [name for name in BOUNDS if getattr(self, name) is not None]
        if len(given) != 1:
            words = " and ".join(given) or "none"
            raise InvalidValueError(f"{', '.join(BOUNDS)}: {words} given, one of the three needed")
        if self.tolerance is not None and self.equals is None:
            raise InvalidValueError(f"tolerance: given with {given[0]}, only with equals")

    @property
    def bound(self) -> tuple[str, float]:
        """'above', 'below' or 'equals', and the number."""
        return next((name, float(getattr(self, name))) for name in BOUNDS if getattr(self, name) is not None)

    @property
    def test(self) -> Test:
        """The same as a test. A study's bound is its own: on its wrong side is wrong, whatever the unit."""
        kind, bound = self.bound
        if kind == "equals":
            return Near(bound, (self.tolerance or 0.0) + _ROUNDING * max(1.0, abs(bound)))
        return Above(bound, least=0.0) if kind == "above" else Below(bound, least=0.0)

    def check(self, combinations: Combinations) -> None:
        """Raise `InvalidValueError` if there are no such cells, or its cells no such quantity."""
        pairs = self.pairs(combinations)
        for number in {one for pair in pairs for one in pair if one is not None}:
            verb = combinations[number][1]
            try:
                check_place(verb.lengths, self.quantity)
            except InvalidValueError as error:
                raise InvalidValueError(f"claim {self.claim!r}: {error}") from None

    def pairs(self, combinations: Combinations) -> list[Pair]:
        """The combinations that the claim is about, or the pairs of them. Raises `InvalidValueError` for none."""
        ones = self._selected(combinations, self.of, "of")
        if self.than is None:
            return [(one, None) for one in ones]
        others = self._selected(combinations, self.than, "than")
        named = {path for path, _ in (*leaves(self.of), *leaves(self.than))}
        found: list[Pair] = [
            (one, other)
            for one in ones
            for other in others
            if one != other and _agree(combinations, one, other, named)
        ]
        if not found:
            raise InvalidValueError(
                f"claim {self.claim!r}: than: {dict(self.than)!r} given, cells that agree with those of "
                f"{dict(self.of)!r} in all else needed"
            )
        return found

    def _selected(self, combinations: Combinations, wanted: Mapping[str, Any], key: str) -> list[int]:
        found = list(range(len(combinations)))
        for path, given in leaves(wanted):
            kept = [number for number in found if _has(combinations[number], path, given)]
            if not kept:
                raise InvalidValueError(f"claim {self.claim!r}: {key}: {_nothing(combinations, path, given)}")
            found = kept
        return found


def _nothing(combinations: Combinations, path: str, given: Any) -> str:
    """Why nothing was selected: no such path, or no such value (with those before it)."""
    held: list[Any] = []
    for chosen, verb in combinations:
        held += [chosen[path]] if path in chosen else values_at(encode(verb), path)
    if not held:
        axes = dict.fromkeys(one for chosen, _ in combinations for one in chosen)
        return f"no cell has the path {path!r}{nearest(path, axes)}"
    there = ", ".join(dict.fromkeys(repr(one) for one in held))
    return f"{path} = {given!r} selects no cell, they have {there}"


def _has(combination: tuple[Mapping[str, Any], Any], path: str, given: Any) -> bool:
    chosen, verb = combination
    held = [chosen[path]] if path in chosen else []
    return any(_same(one, given) for one in held + values_at(encode(verb), path))


def _agree(combinations: Combinations, one: int, other: int, named: set[str]) -> bool:
    """Whether two combinations chose the same at every path that is not named."""
    a, b = (combinations[number][0] for number in (one, other))
    return all(path in a and path in b and _same(a[path], b[path]) for path in {*a, *b} if path not in named)


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON has it: 16 is 16.0, but true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other
