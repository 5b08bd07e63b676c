"""Hypothesis strategies for architectures: every variant of every union, edges included."""

import dataclasses
import functools
from collections.abc import Iterable
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from pydantic_core import PydanticUndefined

from posbias.core import spec
from posbias.core.errors import InvalidValueError
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import CONTENTS, QUERY_SCALES, ConstantDiagonal, ScalableSoftmax, StepScale
from posbias.theory.masks import (
    MASKS,
    Banded,
    BlockSparse,
    Chunked,
    CustomMask,
    Dilated,
    Fixed,
    Prefix,
    SlidingWindow,
    Split,
)
from posbias.theory.mixing import MIXINGS, MeasuredMixing, PerLayer, PowerDecay
from posbias.theory.positional import (
    POSITIONALS,
    T5,
    ALiBi,
    DecayBias,
    DenseLogits,
    DistanceFunction,
    KerpleLog,
    KerplePower,
    NeedsMeasurement,
    NoPE,
    RoPE,
    Sandwich,
    Selected,
    Tabulated,
)

LONGEST = 300
"""Texts of up to this many tokens fit every drawn table and matrix; prefixes are no longer than `SHORTEST`."""
SHORTEST = 4
LINEAR = (NoPE, ALiBi, DecayBias, NeedsMeasurement)

fractions = st.floats(0, 1)
slopes = st.one_of(st.just(0.0), st.floats(1e-12, 20), st.floats(0.001, 1))
logits = st.one_of(st.just(0.0), st.floats(-30, 30), st.sampled_from([-1000.0, 1000.0]))
moderate = st.floats(-20, 20)
steps = st.floats(-3, 3)


def members(union: Iterable[type], own: dict[type, st.SearchStrategy], heads: int = 1) -> dict:
    """A strategy for every class of a union: its own, or any values of the types of its fields."""
    return {cls: own[cls] if cls in own else any_fields(cls, heads) for cls in union}


@st.composite
def any_fields(draw, cls: Any, heads: int) -> Any:
    """A value of a class by the types of its fields, lists with a number for each head, some fields left out."""

    def each(numbers):
        return st.lists(numbers, min_size=heads, max_size=heads)

    least, above, any_number = st.floats(0, 10), st.floats(0.01, 10), st.floats(-10, 10)
    known = {bool: st.booleans(), NoneType: st.none(), float: any_number, spec.Fraction: fractions}
    known |= {spec.Count: st.integers(1, 40), spec.NaturalNumber: st.integers(0, 3)}
    known |= {spec.NonNegative: least, spec.Positive: above, spec.Numbers: each(any_number)}
    known |= {spec.NonNegatives: each(least), spec.Positives: each(above), spec.Fractions: each(fractions)}
    known[spec.Rows] = each(st.lists(any_number, min_size=8, max_size=8))
    hints, given = get_type_hints(cls, include_extras=True), {}
    for field in dataclasses.fields(cls):
        needed = getattr(field.default, "default", field.default) in (dataclasses.MISSING, PydanticUndefined)
        if not field.kw_only and (needed or draw(st.booleans())):
            hint = hints[field.name]
            kinds = [hint] if hint in known else get_args(hint)
            assert set(kinds) <= set(known), f"{cls.__name__} needs a strategy of its own"
            given[field.name] = draw(st.one_of(*(known[kind] for kind in kinds)))
    try:
        return cls(**given)
    except InvalidValueError:
        reject()


def exponential(heads: int) -> st.SearchStrategy:
    """The encodings −m·d alone."""
    every = members(POSITIONALS, _positionals(heads), heads)
    return st.one_of(*(every[cls] for cls in LINEAR))


def curved(heads: int) -> st.SearchStrategy:
    """The encodings by distance that are no exponential family and hold for any length of text."""
    every = _positionals(heads)
    return st.one_of(*(every[cls] for cls in (RoPE, T5, KerpleLog, KerplePower, Sandwich)))


def positionals(heads: int) -> st.SearchStrategy:
    """Any encoding."""
    return st.one_of(*members(POSITIONALS, _positionals(heads), heads).values())


def _positionals(heads: int) -> dict[type, st.SearchStrategy]:
    def each(numbers):
        return st.lists(numbers, min_size=heads, max_size=heads)

    return {
        ALiBi: st.one_of(st.builds(ALiBi, scale=st.floats(0.05, 2)), st.builds(ALiBi, each(slopes))),
        DecayBias: st.builds(DecayBias, slopes),
        RoPE: st.one_of(
            st.builds(
                RoPE,
                each(st.lists(moderate, min_size=3, max_size=3)),
                dimension=st.just(6),
                base=st.floats(2, 1e6),
            ),
            st.builds(
                RoPE,
                st.lists(moderate, min_size=1, max_size=1),
                st.lists(steps, min_size=1, max_size=1),
                frequencies=st.lists(st.floats(0, 3), min_size=1, max_size=4),
            ),
        ),
        T5: st.builds(
            T5, each(st.lists(moderate, min_size=8, max_size=8)), st.integers(5, 400), st.booleans()
        ),
        KerpleLog: st.builds(KerpleLog, each(st.floats(0, 10)), each(st.floats(0.001, 10))),
        KerplePower: st.builds(KerplePower, each(st.floats(0, 2)), each(st.floats(0.1, 2))),
        Sandwich: st.builds(
            Sandwich, st.one_of(st.none(), each(st.floats(0.2, 8))), st.sampled_from([2, 16, 128])
        ),
        Tabulated: st.builds(_table, each(st.lists(moderate, min_size=4, max_size=4)), st.booleans()),
        DistanceFunction: st.just(DistanceFunction(wave)),
        DenseLogits: st.one_of(
            st.builds(_matrix, st.integers(0, 4), st.sampled_from([1.0, 30.0, 800.0])),
            st.builds(_biases, st.integers(0, 4), st.just(heads)),
        ),
        Selected: st.builds(_selected, each(st.lists(st.floats(0.01, 1), min_size=4, max_size=4))),
        NeedsMeasurement: st.just(NeedsMeasurement("rotary")),
    }


def _table(rows, steep: bool) -> Tabulated:
    """A few drawn numbers repeated over all distances, on a slope where `steep`."""
    slope = -2.5 if steep else 0.0
    table = [[row[d % 4] + slope * d for d in range(LONGEST)] for row in rows]
    return Tabulated(table, after=[row[::-1] for row in table])


def _selected(rows) -> Selected:
    """A few drawn rates repeated over all distances."""
    table = [[row[d % 4] for d in range(LONGEST)] for row in rows]
    return Selected(table, [row[::-1] for row in table])


@functools.cache
def _matrix(seed: int, spread: float) -> DenseLogits:
    return DenseLogits(np.random.default_rng(seed).uniform(-spread, spread, (LONGEST, LONGEST)))


@functools.cache
def _biases(seed: int, heads: int) -> DenseLogits:
    """A bias per head in which a third of the pairs is masked, but no token from itself."""
    rng = np.random.default_rng(seed)
    biases = rng.uniform(-5, 5, (heads, LONGEST, LONGEST))
    biases[(rng.random(biases.shape) < 1 / 3) & ~np.eye(LONGEST, dtype=bool)] = -np.inf
    return DenseLogits(biases)


def wave(distance):
    """A function of distance that is the same for all heads."""
    return 3.0 * np.sin(distance / 3.0)


@functools.cache
def _drawn_mask(seed: int) -> CustomMask:
    """Any pairs, and every token with itself."""
    return CustomMask(np.random.default_rng(seed).random((LONGEST, LONGEST)) < 0.1 + np.eye(LONGEST))


def in_blocks(query, key):
    """Blocks of four tokens that see each other."""
    return key // 4 == query // 4


def dilated(query, key):
    """Every third earlier token, and the token itself."""
    return (key <= query) & ((query - key) % 3 == 0)


def one_ahead(query, key):
    """The token itself, and for token 1 the next one."""
    return (key == query) | ((query == 1) & (key == 2))


def by_head(heads: int, numbers: st.SearchStrategy) -> st.SearchStrategy:
    """A number for each head, or one for all."""
    return st.lists(numbers, min_size=1, max_size=1) | st.lists(numbers, min_size=heads, max_size=heads)


def contents(heads: int) -> st.SearchStrategy:
    each, column = by_head(heads, logits), by_head(heads, st.one_of(moderate, logits))
    every = {
        ConstantDiagonal: st.one_of(
            st.builds(ConstantDiagonal, each, each), st.builds(ConstantDiagonal, each, first_column=column)
        )
    }
    return st.one_of(*members(CONTENTS, every, heads).values())


def masks(longest: int = 400, prefix: int = SHORTEST, kinds: Any = object) -> st.SearchStrategy:
    """Any mask of `kinds`, with windows of up to `longest` tokens, often short, and prefixes of up to `prefix`."""
    few = st.integers(1, 9)
    some = st.integers(1, max(9, longest // 10))
    width = st.one_of(few, st.integers(1, longest))
    every = {
        SlidingWindow: st.builds(SlidingWindow, width, st.sampled_from([0, 0, 1, 2, 7, 40])),
        Prefix: st.builds(Prefix, st.integers(1, prefix)),
        Chunked: st.builds(Chunked, width),
        Dilated: st.builds(Dilated, few, st.one_of(st.none(), some)),
        BlockSparse: st.one_of(
            st.builds(
                BlockSparse,
                some,
                st.integers(1, 4),
                st.integers(0, 2),
                st.one_of(st.none(), st.integers(1, 5)),
            ),
            # often the farthest key is in the first block that the stride shows
            st.builds(BlockSparse, st.integers(1, 4), stride=st.integers(2, 5)),
        ),
        Fixed: st.builds(lambda block, last: Fixed(block, min(block, last)), some, few),
        CustomMask: st.one_of(
            st.builds(_drawn_mask, st.integers(0, 4)),
            st.builds(CustomMask, st.sampled_from([in_blocks, dilated, one_ahead])),
        ),
    }
    return st.one_of(*(strategy for cls, strategy in members(MASKS, every).items() if issubclass(cls, kinds)))


def mixings(depth: int) -> st.SearchStrategy:
    every = {
        PowerDecay: st.builds(PowerDecay, fractions, st.floats(0, 3)),
        PerLayer: st.builds(PerLayer, st.lists(fractions, min_size=depth, max_size=depth)),
        MeasuredMixing: st.builds(
            MeasuredMixing,
            st.lists(fractions, min_size=depth, max_size=depth),
            tokens=st.integers(1, 1000),
            text=st.text(max_size=5),
        ),
    }
    return st.one_of(*members(MIXINGS, every).values())


def query_scales(heads: int) -> st.SearchStrategy:
    """Any temperature by position."""
    each = st.lists(st.floats(-1, 2), min_size=heads, max_size=heads)
    every = {
        ScalableSoftmax: st.builds(ScalableSoftmax, each, each),
        StepScale: st.builds(StepScale, st.floats(0, 1), st.integers(1, 40), st.integers(0, 1)),
    }
    return st.one_of(*members(QUERY_SCALES, every, heads).values())


@st.composite
def layers(
    draw,
    mask: st.SearchStrategy | None = None,
    positional=positionals,
    sinks: bool = True,
    scaled: bool = False,
) -> Layer:
    heads = draw(st.integers(1, 5))
    weights = None
    if draw(st.booleans()):
        raw = draw(st.lists(st.integers(0, 8), min_size=heads, max_size=heads).filter(any))
        weights = [one / sum(raw) for one in raw]
    learned = None
    if sinks and draw(st.integers(0, 3)) == 0:
        learned = draw(by_head(heads, st.one_of(moderate, logits)))
    return Layer(
        heads=heads,
        query_scale=draw(query_scales(heads)) if scaled and draw(st.integers(0, 5)) == 0 else None,
        mask=draw(masks() if mask is None else mask),
        positional=draw(positional(heads)),
        content=draw(contents(heads)),
        head_weights=weights,
        temperature=draw(st.sampled_from([1.0, 0.5, 3.0])),
        sinks=learned,
    )


@st.composite
def architectures(draw, max_depth: int = 5, **choices) -> Architecture:
    """`choices` as in `layers`: a strategy for the mask, one for the encoding, no learned sinks, temperatures by
    position too.
    """
    pattern = draw(st.lists(layers(**choices), min_size=1, max_size=3))
    depth = len(pattern) * draw(st.integers(1, max(1, max_depth // len(pattern))))
    return Architecture(depth=depth, layers=tuple(pattern), mixing=draw(mixings(depth)), name="drawn")


def spans(longest: int, prefix: int) -> st.SearchStrategy:
    """Masks whose keys are a run and the first few, or pieces of the text."""
    return masks(longest, prefix, Banded | Split)
