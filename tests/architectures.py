"""Hypothesis strategies for architectures: every variant of every union, edges included."""

from hypothesis import strategies as st

from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import CONTENTS, ConstantDiagonal, NoContent
from posbias.theory.mixing import (
    MIXINGS,
    AbnarZuidema,
    AtInitialisation,
    AttentionOnly,
    Constant,
    PerLayer,
    PowerDecay,
)
from posbias.theory.positional import POSITIONALS, ALiBi, Decay, NeedsMeasurement, NoPE

fractions = st.floats(0, 1)
slopes = st.one_of(st.just(0.0), st.floats(1e-12, 20), st.floats(0.001, 1))
logits = st.one_of(st.just(0.0), st.floats(-30, 30), st.sampled_from([-1000.0, 1000.0]))


def positionals(heads: int) -> st.SearchStrategy:
    every = {
        NoPE: st.just(NoPE()),
        ALiBi: st.one_of(
            st.builds(ALiBi, scale=st.floats(0.05, 2)),
            st.builds(ALiBi, st.lists(slopes, min_size=heads, max_size=heads)),
        ),
        Decay: st.builds(Decay, slopes),
        NeedsMeasurement: st.just(NeedsMeasurement("rotary")),
    }
    assert set(every) == set(POSITIONALS), "a new encoding needs a strategy here"
    return st.one_of(*every.values())


def contents(heads: int) -> st.SearchStrategy:
    each = st.lists(logits, min_size=heads, max_size=heads)
    every = {NoContent: st.just(NoContent()), ConstantDiagonal: st.builds(ConstantDiagonal, each, each)}
    assert set(every) == set(CONTENTS), "a new content needs a strategy here"
    return st.one_of(*every.values())


def mixings(depth: int) -> st.SearchStrategy:
    every = {
        Constant: st.builds(Constant, fractions),
        PowerDecay: st.builds(PowerDecay, fractions, st.floats(0, 3)),
        PerLayer: st.builds(PerLayer, st.lists(fractions, min_size=depth, max_size=depth)),
        AttentionOnly: st.just(AttentionOnly()),
        AbnarZuidema: st.just(AbnarZuidema()),
        AtInitialisation: st.just(AtInitialisation()),
    }
    assert set(every) == set(MIXINGS), "a new schedule needs a strategy here"
    return st.one_of(*every.values())


@st.composite
def layers(draw) -> Layer:
    heads = draw(st.integers(1, 5))
    weights = None
    if draw(st.booleans()):
        raw = draw(st.lists(st.integers(1, 8), min_size=heads, max_size=heads))
        weights = [one / sum(raw) for one in raw]
    return Layer(
        heads=heads,
        positional=draw(positionals(heads)),
        content=draw(contents(heads)),
        head_weights=weights,
        temperature=draw(st.sampled_from([1.0, 0.5, 3.0])),
    )


@st.composite
def architectures(draw, max_depth: int = 5) -> Architecture:
    pattern = draw(st.lists(layers(), min_size=1, max_size=3))
    depth = len(pattern) * draw(st.integers(1, max(1, max_depth // len(pattern))))
    return Architecture(depth=depth, layers=tuple(pattern), mixing=draw(mixings(depth)))
