"""Who may attend to whom: masks as relations between query i and key j.

Each class says once which keys a query sees, and an engine is chosen by how it does: `band()` where they are one
run of constant width and perhaps the first few tokens, `pieces(tokens)` where the text is cut into causal texts of
their own, `keys(query, tokens)` where neither holds. From that follow the pairs that it admits (`allowed`) and how
far forward and back influence comes from (`reach`, `farthest`); a class without any of the three has its own.

Adding a mask is one class here, and its name in `Mask`, which commands, `--vary`,
files, pictures and tests iterate.
"""

import dataclasses
import functools
import sys
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int
from pydantic import Field

from posbias.core.errors import InvalidValueError, nearest, shortened, wrong
from posbias.core.spec import Count, NaturalNumber, Open, members, tag, value
from posbias.theory.custom import Booleans

ALL = sys.maxsize
"""As many tokens as the text has."""
Allowed = Bool[np.ndarray, "query key"]
Keys = Int[np.ndarray, "key"]
Positions = Int[np.ndarray, "query"]

# --- what engines ask of a mask -------------------------------------------------------------------------------


class Band(NamedTuple):
    """A query sees itself and the `behind` tokens before it, the first `always`, and all before `prefix`.

    Of the first `always` tokens and of those before it, it sees none after itself. Where `prefix` is not 0,
    `always` is.
    """

    behind: int
    always: int = 0
    prefix: int = 0

    def at(self, tokens: int) -> "Band":
        """The same for a text of `tokens` tokens, no number beyond it."""
        return Band(min(self.behind, tokens - 1), min(self.always, tokens), min(self.prefix, tokens))

    @property
    def looks_back(self) -> bool:
        """Whether no query sees a key after it."""
        return self.prefix <= 1

    def is_causal(self, tokens: int) -> bool:
        """Whether a query sees every token before it and none after it."""
        return self.looks_back and self.behind >= tokens - 1


class Bounds(NamedTuple):
    """The keys that each query sees as a run low … high, and how many first tokens all later ones see."""

    low: Positions
    high: Positions
    always: int


@runtime_checkable
class Banded(Protocol):
    """A mask that is a band."""

    def band(self) -> Band: ...


@runtime_checkable
class Split(Protocol):
    """A mask that cuts the text into pieces, each a causal text of its own."""

    def pieces(self, tokens: int) -> tuple[int, ...]: ...


class LooksBack:
    """A mask under which a query sees every token before it and none after it, unless its class says otherwise.

    `word` is its name in commands, followed by the values of its fields; `varied` describes its first field, where
    that is a number that can be varied.
    """

    word: ClassVar[str] = ""
    varied: ClassVar[str] = ""

    def keys(self, query: int, tokens: int) -> Keys:
        """The keys that a query sees."""
        return np.flatnonzero(self.allowed(tokens)[query])

    def allowed(self, tokens: int) -> Allowed:
        """True where query i may attend to key j. Raises `InvalidValueError` for a mask beyond the text."""
        key, seen = np.arange(tokens), bounds(self, tokens)
        if seen is None:
            return np.array([np.isin(key, self.keys(query, tokens)) for query in range(tokens)])
        low = seen.low[:, None]
        return ((key >= low) & (key <= seen.high[:, None])) | (key < np.minimum(seen.always, low))

    def reach(self, query: int, tokens: int) -> int:
        """The last position that can influence `query` through any number of layers."""
        return query

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        band = self.band().at(tokens) if isinstance(self, Banded) else Band(tokens - 1)
        return tokens - 1 if band.always else band.behind

    @property
    def title(self) -> str:
        """Its kind, and the fields that are not at their defaults, for instance "sliding window, width 9"."""
        values = [(field.name, getattr(self, field.name), field.default) for field in numbers_of(type(self))]
        kind = type(self).kind.replace("_", " ")  # type: ignore[attr-defined]
        return ", ".join([kind, *(f"{name} {given}" for name, given, default in values if given != default)])


def is_causal(mask: Any, tokens: int) -> bool:
    """Whether a mask is the causal one for a text of `tokens` tokens, as far as it says so itself."""
    return isinstance(mask, Banded) and mask.band().is_causal(tokens)


def lookahead(mask: Any, tokens: int) -> int:
    """A distance j − i beyond which no query sees a key after it; from its reach."""
    if isinstance(mask, LooksBack):
        return mask.reach(0, tokens)
    return max(mask.reach(query, tokens) - query for query in range(tokens))


def bounds(mask: Any, tokens: int) -> Bounds | None:
    """The keys of every query where they are one run and the first few; None of another mask.

    Raises `InvalidValueError` for a mask that does not fit the text.
    """
    position = np.arange(tokens)
    if isinstance(mask, Banded):
        lookahead(mask, tokens)
        band = mask.band().at(tokens)
        low, high = np.maximum(position - band.behind, 0), np.maximum(position, band.prefix - 1)
        return Bounds(low, high, band.always)
    if isinstance(mask, Split):
        starts = np.array(mask.pieces(tokens))
        return Bounds(starts[np.searchsorted(starts, position, side="right") - 1], position, 0)
    return None


# --- the masks ------------------------------------------------------------------------------------------------


@value
class Causal(LooksBack):
    """Every token attends to itself and to all earlier ones: j ≤ i (Wu et al. 2025, §4.1)."""

    kind: Literal["causal"] = tag(default="causal")
    word: ClassVar[str] = "causal"

    def band(self) -> Band:
        """All tokens before a query."""
        return Band(ALL)


@value
class Full(LooksBack):
    """Every token attends to every token, as in an encoder."""

    kind: Literal["full"] = tag(default="full")
    word: ClassVar[str] = "full"

    def reach(self, query: int, tokens: int) -> int:
        """The last position that can influence `query` through any number of layers."""
        return tokens - 1

    def band(self) -> Band:
        """A prefix of the whole text."""
        return Band(ALL, prefix=ALL)


@value
class SlidingWindow(LooksBack):
    """Every token attends to itself and the `width` − 1 tokens before it, and to the first `sinks` tokens.

    i − width < j ≤ i (Wu et al. 2025, §4.1, their w), or j < sinks and j ≤ i (Xiao et al. 2024). A width of
    the whole text or more is the causal mask.
    """

    width: Count
    sinks: NaturalNumber = 0
    kind: Literal["sliding_window"] = tag(default="sliding_window")
    word: ClassVar[str] = "window"
    varied: ClassVar[str] = "width of the sliding window"

    def band(self) -> Band:
        """The window, and the sinks."""
        return Band(self.width - 1, self.sinks)


@value
class Prefix(LooksBack):
    """The first `length` tokens attend to each other, the rest causally (Wu et al. 2025, §4.1, their K)."""

    length: Count
    kind: Literal["prefix"] = tag(default="prefix")
    word: ClassVar[str] = "prefix"
    varied: ClassVar[str] = "length of the prefix"

    def reach(self, query: int, tokens: int) -> int:
        """The last position that can influence `query`. Raises `InvalidValueError` as `allowed` does."""
        if self.length > tokens:
            raise wrong("length", f"a prefix of at most the text's {tokens} tokens", self.length)
        return max(query, self.length - 1)

    def band(self) -> Band:
        """All tokens before a query or in the prefix."""
        return Band(ALL, prefix=self.length)


@value
class Chunked(LooksBack):
    """Every token attends to itself and to the tokens before it in its own chunk of `width` tokens.

    j ≤ i and ⌊j/width⌋ = ⌊i/width⌋: block-diagonal and causal, as most layers of Llama 4 are (Meta 2025, its
    `attention_chunk_size`). A width of the whole text or more is the causal mask. Nothing passes from chunk to
    chunk but through other layers.
    """

    width: Count
    kind: Literal["chunked"] = tag(default="chunked")
    word: ClassVar[str] = "chunk"
    varied: ClassVar[str] = "width of the chunks"

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        return min(self.width, tokens) - 1

    def pieces(self, tokens: int) -> tuple[int, ...]:
        """Where the chunks begin."""
        return tuple(range(0, tokens, self.width))


@value
class Dilated(LooksBack):
    """Every token attends to itself and to every `stride`-th token before it, to at most `width` keys in all.

    j ≤ i, i − j a multiple of `stride`, and (i − j)/`stride` < `width`, where there is one: the strided pattern
    of Child et al. 2019, §4.3, and the dilated window of Beltagy et al. 2020, §3.1. A stride of 1 is a sliding
    window.
    """

    stride: Count
    width: Count | None = None
    kind: Literal["dilated"] = tag(default="dilated")
    word: ClassVar[str] = "dilated"
    varied: ClassVar[str] = "stride of the dilated mask"

    def keys(self, query: int, tokens: int) -> Keys:
        """The keys that a query sees."""
        seen = query // self.stride + 1 if self.width is None else min(query // self.stride + 1, self.width)
        return query - self.stride * np.arange(seen)[::-1]

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        most = (tokens - 1) // self.stride
        return self.stride * (most if self.width is None else min(most, self.width - 1))


@value
class BlockSparse(LooksBack):
    """Every token attends, among itself and those before it, to whole blocks of `block` tokens.

    With the query in block b, block c is seen where b − c < `local` (its own is the first), where c < `first`, and
    where c + 1 is a multiple of `stride`, if there is one. `first` are the global blocks of BigBird (Zaheer et al.
    2020, §2; without its random ones), `stride` the vertical ones of Phi-3-small (Abdin et al. 2024, §2; its
    `blocksparse_vert_stride`, all heads alike).
    """

    block: Count
    local: Count = 1
    first: NaturalNumber = 0
    stride: Count | None = None
    kind: Literal["block_sparse"] = tag(default="block_sparse")
    word: ClassVar[str] = "blocks"
    varied: ClassVar[str] = "tokens in a block of the block-sparse mask"

    def keys(self, query: int, tokens: int) -> Keys:
        """The keys that a query sees."""
        own = query // self.block
        blocks = np.arange(own + 1)
        seen = (own - blocks < self.local) | (blocks < self.first)
        if self.stride is not None:
            seen |= (blocks + 1) % self.stride == 0
        keys = (self.block * blocks[seen, None] + np.arange(self.block)).ravel()
        return keys[keys <= query]

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        if self.first:
            return tokens - 1
        near = min(self.local * self.block, tokens) - 1
        return near if self.stride is None else max(near, tokens - 1 - (self.stride - 1) * self.block)


@value
class Fixed(LooksBack):
    """Every token attends to its block of `block` tokens up to itself, and to the `last` ones of each before.

    j ≤ i, and ⌊i/l⌋ = ⌊j/l⌋ or j mod l ≥ l − c, with l = `block` and c = `last`: both sets of the fixed pattern of
    Child et al. 2019, §4.3, in one head. What a block holds goes on through its last tokens alone. Raises
    `InvalidValueError` where `last` is above `block`.

        Fixed(4).allowed(8)[5]   # True at 3 (the last of the first block), 4 and 5
    """

    block: Count
    last: Count = 1
    kind: Literal["fixed"] = tag(default="fixed")
    word: ClassVar[str] = "fixed"
    varied: ClassVar[str] = "tokens in a block of the fixed mask"

    def __post_init__(self):
        if self.last > self.block:
            raise wrong("last", f"at most the block's {self.block} tokens", self.last)

    def keys(self, query: int, tokens: int) -> Keys:
        """The keys that a query sees."""
        begins = query // self.block * self.block
        lasts = np.arange(self.block, begins + 1, self.block)[:, None] + np.arange(-self.last, 0)
        return np.concatenate([lasts.ravel(), np.arange(begins, query + 1)])

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        within = min(self.block, tokens) - 1
        return max(within, tokens - 1 - (self.block - self.last)) if tokens > self.block else within


@value
class CustomMask:
    """Any mask: `rule` is booleans [query, key], a function of both, or its name "module:name".

    A function takes two integer arrays of positions and gives True where the query may attend to the key; it is
    called for a few queries at a time, in O(tokens) memory, and what it gives for a pair may depend on nothing
    else. An array may be larger than the text.

        CustomMask(lambda query, key: (key <= query) & (key // 64 == query // 64))
    """

    rule: Booleans
    kind: Literal["custom"] = tag(default="custom")

    def allowed(self, tokens: int) -> Allowed:
        """True where query i may attend to key j."""
        return self.rule.over("rule", np.arange(tokens), np.arange(tokens))

    def keys(self, query: int, tokens: int) -> Keys:
        """The keys that a query sees."""
        return np.flatnonzero(self.rule.over("rule", np.array([query]), np.arange(tokens))[0])

    def reach(self, query: int, tokens: int) -> int:
        """A position beyond which nothing influences `query` through any number of layers."""
        return int(_extent(self, tokens)[0][query])

    def farthest(self, tokens: int) -> int:
        """The largest distance i − j at which a query sees a key."""
        return _extent(self, tokens)[1]


@functools.lru_cache(maxsize=8)
def _extent(mask: CustomMask, tokens: int) -> tuple[Positions, int]:
    """`reach` of every query, and `farthest`. Raises `InvalidValueError` for a query that sees no key."""
    reach, farthest = np.arange(tokens), 0
    step = max(1, 2**18 // tokens)
    for start in range(0, tokens, step):
        queries = np.arange(start, min(start + step, tokens))
        rows = mask.rule.over("rule", queries, np.arange(tokens))
        if not rows.any(axis=1).all():
            blind = queries[np.argmin(rows.any(axis=1))]
            raise wrong("rule", "at least one key for every query", got=f"none for {blind}")
        farthest = max(farthest, int((queries - rows.argmax(axis=1)).max()))
        last = tokens - 1 - rows[:, ::-1].argmax(axis=1)
        reach[queries] = np.maximum(queries, last)
    # what any earlier query sees may be passed on
    reach = np.maximum.accumulate(reach)
    for query in range(tokens - 1, -1, -1):
        if reach[query] > query:
            reach[query] = reach[reach[query]]
    return reach, farthest


Mask = Annotated[
    Causal | SlidingWindow | Prefix | Full | Chunked | Dilated | BlockSparse | Fixed | CustomMask,
    Field(discriminator="kind"),
    Open("allowed", "reach", "farthest"),
]
"""The masks; a class of your own with these methods is one too."""

MASKS = members(Mask)
"""Every class of the union, for commands, tests, menus and tables."""

# --- masks as commands and specification files write them: causal, window=9, window=9:2, prefix=4 ------------


def numbers_of(cls: type) -> list[dataclasses.Field]:
    """The fields of a mask whose values follow its word, in order."""
    return [field for field in dataclasses.fields(cls) if not field.kw_only]


def _spelling(cls: Any) -> str:
    """How a mask is written, for instance dilated=STRIDE[:WIDTH]."""
    first, *others = [field.name.upper() for field in numbers_of(cls)] or [""]
    return f"{cls.word}={first}" + "".join(f"[:{name}]" for name in others) if first else cls.word


_WORDS: dict[str, Any] = {
    cls.word: cls for cls in sorted(MASKS, key=lambda cls: bool(numbers_of(cls))) if hasattr(cls, "word")
}


def mask_of(word: str) -> Mask:
    """The mask that a word means. Raises `InvalidValueError` for an unknown word, naming the nearest."""
    name, equals, sizes = word.partition("=")
    cls = _WORDS.get(name)
    if cls is None or bool(equals) != bool(numbers_of(cls)):
        hint = "" if cls is not None else nearest(name, _WORDS)
        known = ", ".join(map(_spelling, _WORDS.values()))
        raise wrong("mask", f"one of {known}", got=f"{shortened(word)}{hint}")
    given = sizes.split(":") if equals else []
    try:
        numbers = [int(size) for size in given]
        if len(numbers) > len(numbers_of(cls)):
            raise ValueError
        return cls(*numbers)
    except InvalidValueError as error:
        raise InvalidValueError(f"mask: {shortened(word)}: {error}") from None
    except ValueError:
        raise wrong("mask", f"{_spelling(cls)} with integers", word) from None


def file_word(mask: Mask) -> str:
    """A mask in a file's name: causal, window9, window9+sinks2."""
    word = getattr(mask, "word", "")
    if not word:
        return mask.kind
    values = [(field.name, getattr(mask, field.name), field.default) for field in numbers_of(type(mask))]
    first = "".join(str(given) for _, given, _ in values[:1])
    others = "".join(f"+{name}{given}" for name, given, default in values[1:] if given != default)
    return f"{word}{first}{others}"
