"""The Gram-space engine against token space on the very same draw, feature by feature, without statistics.

Both engines use the vectors that one block of the fast one consists of, put into d dimensions in
any orientation. What they may differ by is rounding. How much that is in a sample is measured on the reference
alone: with another orientation and a covariance shaken in its last digits it differs by rounding and nothing
else (`rounding`).
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from posbias.core.errors import InvalidValueError
from posbias.core.machine import sequence
from posbias.simulation import RecencyModel, gram, simulate_recency, token_space
from posbias.simulation.tally import Layout, Tally
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow

MARGIN = 30
"""How many times the rounding seen between two references the engines may differ by."""
MOMENTS = ("mean", "squares", "products")


# --- the plain way from a block to scores ------------------------------------------------------------------


def factors(
    model: RecencyModel, seed: int, block: int, samples: int, shaken: float | np.ndarray = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens over coordinates [sample, token, coordinate], and what they have along the ones [sample, token]."""
    normals, chis = gram.draw_block(model, seed, block)
    left = iter(normals[:, :samples])
    bartlett = np.zeros((samples, model.tokens, min(model.tokens, model.freedom)))
    along = np.zeros((samples, model.tokens))
    for i in range(model.tokens):
        if gram.extra_coordinates(model):
            along[:, i] = next(left)
        for k in range(min(i, model.freedom)):
            bartlett[:, i, k] = next(left)
        if i < model.freedom:
            bartlett[:, i, i] = chis[i, :samples]
    assert next(left, None) is None
    covariance = np.eye(model.tokens) + model.anisotropy / (1.0 - model.anisotropy)
    lower = np.linalg.cholesky(covariance * shaken) / math.sqrt(model.dimension)
    return lower @ bartlett, along @ lower.T


def oriented(
    model: RecencyModel, bartlett: np.ndarray, along: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The same tokens as vectors in d dimensions, in an orientation drawn by `rng`."""
    frame = rng.standard_normal((model.dimension, model.dimension))
    frame[:, 0] = 1.0
    basis = np.linalg.qr(frame)[0].T
    basis[0] = 1.0 / math.sqrt(model.dimension)
    if model.norm != "layernorm":
        return bartlett @ basis[rng.permutation(model.dimension)[: bartlett.shape[-1]]]
    if not gram.extra_coordinates(model):
        # the norm comes first, so what stands along the ones must make no difference
        along = rng.standard_normal(along.shape)
    return bartlett @ basis[1 : 1 + bartlett.shape[-1]] + along[..., None] * basis[0]


def references(model: RecencyModel, seed: int, block: int, samples: int):
    """Scores and attention of the block's first samples, twice: rounding makes the difference."""
    rng = np.random.default_rng(seed)
    shaken = 1.0 + 4 * np.finfo(float).eps * rng.uniform(-1, 1, (model.tokens, model.tokens))
    drawn = [factors(model, seed, block, samples), factors(model, seed, block, samples, shaken)]
    return [token_space.layer_scores(model, oriented(model, *one, rng)) for one in drawn]


def rounding(one, other) -> tuple[np.ndarray, np.ndarray]:
    """By how much scores and attention may be off [layer, sample]."""
    bounds = []
    for a, b in zip(one, other, strict=True):
        size = np.maximum(np.abs(a), np.abs(b)).max(axis=(2, 3))
        bounds.append(MARGIN * (np.abs(a - b).max(axis=(2, 3)) + np.finfo(float).eps * size))
    return bounds[0], bounds[1]


def doubtful(scores: np.ndarray, bound: np.ndarray, layout: Layout) -> np.ndarray:
    """Of each layer and sample, the triples of which rounding may turn the order."""
    place, allowed = np.arange(layout.tokens), layout.mask.allowed(layout.tokens)
    query, key, other = place[:, None, None], place[:, None], place
    triples = allowed[:, :, None] & allowed[:, None] & (query > key) & (key > other)
    close = np.abs(scores[..., None] - scores[..., None, :]) <= 2 * bound[..., None, None, None]
    return (close & triples).sum(axis=(2, 3, 4))


def allowances(one, other, layout: Layout) -> dict[str, np.ndarray]:
    """What the moments of features may be off by, from what each feature of each sample may be off by.

    With features f off by e, moments are off by at most ‖e‖ as follows from Cauchy and Schwarz; centring does
    not lengthen e. Sums themselves round, too: by far less than 1e-13 of the terms' sizes.
    """
    scores, attention = rounding(one, other)
    reference = Tally.of_scores(*one, layout.mask)
    depth, samples = scores.shape
    error = np.empty((depth, samples, layout.size))
    error[..., : layout.pairs] = scores[..., None]
    error[..., layout.attention : layout.steps] = attention[..., None]
    error[..., layout.steps : layout.shares] = 2 * scores[..., None]
    error[..., layout.shares :] = doubtful(one[0], scores, layout)[..., None] / np.maximum(layout.triples, 1)
    length = np.sqrt((error**2).sum(axis=1)) + 1e-13 * np.sqrt(samples * reference.mean**2)
    spread = np.sqrt(reference.squares)
    squares = 2 * spread * length + length**2 + 1e-13 * reference.squares
    spread, length = spread[:, layout.steps :], length[:, layout.steps :]
    products = spread * length[0] + length * spread[0] + length * length[0] + 1e-13 * spread * spread[0]
    mean = error.mean(axis=1) + 1e-13 * np.abs(reference.mean)
    return {"mean": mean, "squares": squares, "products": products}


def agree(tally: Tally, one, other, blur: float, ties: float) -> None:
    """All moments are those of the reference, to its rounding; which is no more than `blur` of the largest score
    of a middling sample, and leaves no more than this share of triples in doubt.
    """
    reference, scores = Tally.of_scores(*one, tally.layout.mask), rounding(one, other)[0]
    assert np.median(scores / np.abs(one[0]).max(axis=(2, 3))) < blur
    assert doubtful(one[0], scores, tally.layout).mean() <= ties * tally.layout.triples[:1].sum()
    assert tally.count == reference.count
    for moment, allowed in allowances(one, other, tally.layout).items():
        assert (np.abs(getattr(tally, moment) - getattr(reference, moment)) <= allowed).all(), moment


# --- the two engines on one draw ---------------------------------------------------------------------------


windows = st.builds(SlidingWindow, st.integers(1, 6), st.integers(0, 2))


@st.composite
def models(draw) -> RecencyModel:
    """Any norm, order and size, d from the least to above the tokens; scores of moderate size."""
    norm = draw(st.sampled_from(["layernorm", "rmsnorm", "none"]))
    tokens = draw(st.one_of(st.integers(2, 12), st.integers(2, 5), st.sampled_from([16, 23, 32])))
    least = {"layernorm": 3, "rmsnorm": 2, "none": 1}[norm]
    fewer, more = st.integers(least, least + tokens), st.integers(tokens + 1, 2 * tokens + 40)
    return RecencyModel(
        tokens=tokens,
        dimension=max(least, draw(st.one_of(fewer, more, st.just(least)))),
        anisotropy=draw(st.one_of(st.just(0.0), st.floats(0, 0.9), st.sampled_from([0.5, 0.6, 0.9]))),
        norm=norm,
        residual=draw(st.booleans()),
        depth=draw(st.integers(1, 5 if tokens < 13 else 3)),
        order=draw(st.sampled_from(["pre", "post"])),
        temperature=draw(st.one_of(st.just(1.0), st.floats(0.3, 20))),
        gain=1.0 if norm == "none" else draw(st.one_of(st.just(1.0), st.floats(0.2, 1.7))),
        bias=0.0 if norm != "layernorm" else draw(st.one_of(st.just(0.0), st.floats(-3, 3))),
        mask=draw(st.just(Causal()) | windows),
    )


@examples(150)
@given(models(), st.integers(0, 2**32), st.integers(0, 5), st.sampled_from([1, 2, 63, 64, 65, 100, 150]))
def test_both_engines_agree_on_the_same_draw(model, seed, block, samples):
    samples = min(samples, 70) if model.tokens > 12 else samples
    one, other = references(model, seed, block, samples)
    assert (one[1][..., ~model.mask.allowed(model.tokens)] == 0).all()
    agree(gram.run_block(model, seed, block, samples), one, other, blur=1e-11, ties=0.01)


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize(
    ("norm", "dimension"), [("layernorm", 3), ("rmsnorm", 2), ("none", 1), ("layernorm", 20)]
)
def test_they_agree_where_embeddings_have_nearly_one_direction(norm, dimension, order):
    """Where the first layer takes embeddings as they are, weights of 1 make tokens equal: ties to rounding."""
    model = RecencyModel(
        dimension=dimension, norm=norm, anisotropy=0.99, order=order, residual=dimension == 1
    )
    agree(gram.run_block(model, 5, 0, 100), *references(model, 5, 0, 100), blur=1e-9, ties=0.03)


# --- the token-space engine itself -------------------------------------------------------------------------


def by_hand(model: RecencyModel, x: list[list[float]]) -> tuple[list, list]:
    """Scores and attention on and below the diagonal, one number after the other, from the equations."""
    tokens, size = range(model.tokens), range(model.dimension)

    def norm(vector):
        if model.norm == "none":
            return vector
        mean = math.fsum(vector) / model.dimension if model.norm == "layernorm" else 0.0
        spread = math.sqrt(math.fsum((e - mean) ** 2 for e in vector) / model.dimension)
        return [model.gain * (e - mean) / spread + model.bias for e in vector]

    scores, attention = [], []
    for layer in range(model.depth):
        if model.order == "post" and layer:
            x = [norm(vector) for vector in x]
        y = [norm(vector) for vector in x] if model.order == "pre" else x
        unit = math.sqrt(model.dimension) * model.temperature
        s = [[math.fsum(y[i][k] * y[j][k] for k in size) / unit for j in range(i + 1)] for i in tokens]
        weights = [[math.exp(one - max(row)) for one in row] for row in s]
        a = [[one / math.fsum(row) for one in row] for row in weights]
        mixed = [[math.fsum(a[i][j] * y[j][k] for j in range(i + 1)) for k in size] for i in tokens]
        x = [[mixed[i][k] + (x[i][k] if model.residual else 0.0) for k in size] for i in tokens]
        scores.append([one for row in s for one in row])
        attention.append([one for row in a for one in row])
    return scores, attention


@examples(60)
@given(models().filter(lambda model: model.tokens < 6 and model.dimension < 20), st.integers(0, 2**32))
def test_token_space_is_what_the_equations_say(model, seed):
    model = replace(model, mask=Causal())
    x = token_space.embeddings(np.random.default_rng(seed), model, 1)
    below = np.tril_indices(model.tokens)
    for drawn, expected in zip(
        token_space.layer_scores(model, x), by_hand(model, x[0].tolist()), strict=True
    ):
        expected = np.array(expected)
        assert np.abs(drawn[:, 0, *below] - expected).max() <= 1e-9 * np.abs(expected).max()


def test_a_block_of_token_space_begins_with_the_samples_of_a_shorter_one():
    model = RecencyModel(tokens=4, dimension=2000)
    size = token_space.block_size(model)
    assert 1 < size < token_space.LARGEST
    rng = np.random.default_rng(sequence(7, token_space.STREAM, 3))
    scores, attention = token_space.layer_scores(model, token_space.embeddings(rng, model, size))
    for samples in (1, size // 2, size):
        tally = token_space.run_block(model, 7, 3, samples)
        expected = Tally.of_scores(scores[:, :samples], attention[:, :samples])
        assert close(tally, expected)
        assert tally.count == samples
    assert not close(token_space.run_block(model, 7, 4, size), expected)


def test_samples_that_a_block_does_not_have_and_scores_out_of_range_are_refused():
    model = RecencyModel(tokens=2, dimension=3, depth=1)
    refused("samples", *(lambda n=n: token_space.run_block(model, 0, 0, n) for n in (0, -1, 5000)))
    beyond = [{"temperature": 1e-310}, {"gain": 1e200}, {"gain": 1e80, "order": "post"}]
    for change in (*beyond, {"norm": "none", "residual": True, "depth": 300}):
        with pytest.raises(InvalidValueError):
            token_space.run_block(RecencyModel(tokens=2, **change), 0, 0, 1)
    for change in ({"temperature": 1e-310}, {"gain": 1e200}):
        refused("model", lambda change=change: simulate_recency(RecencyModel(**change), 10))


# --- tallies -----------------------------------------------------------------------------------------------


def close(one: Tally, other: Tally, relative: float = 1e-12) -> bool:
    """Whether two tallies agree to rounding, moments of features in units of the features' sizes."""
    if one.count != other.count:
        return False
    size = np.sqrt(other.squares / other.count + other.mean**2) + np.finfo(float).tiny
    steps = other.layout.steps
    scales = (size, other.count * size**2, other.count * size[:, steps:] * size[0, steps:])
    return all(
        bool((np.abs(getattr(one, moment) - getattr(other, moment)) <= relative * scale).all())
        for moment, scale in zip(MOMENTS, scales, strict=True)
    )


masks = st.one_of(windows, st.just(Causal()), st.builds(Prefix, st.integers(1, 4)), st.just(Full()))


@given(st.integers(4, 7), masks, st.integers(0, 99))
@examples(40)
def test_features_are_what_the_layout_says(tokens, mask, seed):
    """Every feature of every sample by its definition, in loops; triples are those whose query sees both keys."""
    rng, allowed = np.random.default_rng(seed), mask.allowed(tokens)
    scores = np.round(rng.standard_normal((2, 3, tokens, tokens)), 1)  # with ties
    attention = rng.random(scores.shape)
    below = [(i, j) for i in range(tokens) for j in range(i + 1)]
    triples = [(i, j, k) for i, j in below for k in range(j) if j < i and allowed[i, j] and allowed[i, k]]
    groups = [triples, *([t for t in triples if t[0] == query] for query in range(2, tokens))]
    groups += [[t for t in triples if t[1] - t[2] == gap] for gap in range(1, tokens - 1)]
    groups += [[t for t in triples if t[0] - t[1] == distance] for distance in range(1, tokens - 1)]

    def features(s, a):
        return (
            [s[i, j] for i, j in below],
            [a[i, j] for i, j in below],
            [s[i, j + 1] - s[i, j] for i, j in below if j < i],
            [s[i, j] - s[i, 0] for i, j in below if 1 <= j < i],
            [sum(s[i, j] > s[i, k] for i, j, k in group) / max(1, len(group)) for group in groups],
        )

    each = [
        [features(*pair) for pair in zip(*layer, strict=True)]
        for layer in zip(scores, attention, strict=True)
    ]
    expected = np.array([[np.concatenate(parts) for parts in layer] for layer in each])
    tally, layout = Tally.of_scores(scores, attention, mask), Layout(tokens, mask)
    assert tally.layout == layout
    assert layout.triples.tolist() == [len(group) for group in groups]
    ends = np.cumsum([len(part) for part in each[0][0]]).tolist()
    assert [layout.pairs, layout.steps, layout.rises, layout.shares, layout.size] == ends
    centred = expected - expected.mean(axis=1, keepdims=True)
    assert tally.mean == pytest.approx(expected.mean(axis=1), rel=1e-12, abs=1e-14)
    assert tally.squares == pytest.approx(np.einsum("tsf,tsf->tf", centred, centred), rel=1e-12, abs=1e-14)
    products = np.einsum("tsf,sf->tf", centred, centred[0])[:, layout.steps :]
    assert tally.products == pytest.approx(products, rel=1e-12, abs=1e-14)


@given(
    st.integers(2, 5),
    st.integers(1, 4),
    st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any),
    st.sampled_from([0.0, 1.0, 1e6]),
    st.integers(0, 2**32),
)
def test_merged_tallies_are_the_tally_of_all_samples(tokens, depth, parts, offset, seed):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((depth, sum(parts), tokens, tokens)) + offset
    attention = rng.random(scores.shape)
    merged = Tally(Layout(tokens), depth)
    for stop, part in zip(np.cumsum(parts), parts, strict=True):
        one = Tally(Layout(tokens), depth)
        if part:
            one = Tally.of_scores(scores[:, stop - part : stop], attention[:, stop - part : stop])
        merged.merge(one)
    assert close(merged, Tally.of_scores(scores, attention))
    # far from zero, too, a spread of about one keeps its digits: nothing cancels but in the scores themselves
    exact = Tally.of_scores(scores, attention).squares
    assert np.abs(merged.squares - exact).max() <= 1e-14 * sum(parts) * (100 + offset)


@pytest.mark.parametrize(("first", "last"), [(1, 2), (30, 64), (30, 65), (64, 65), (64, 200), (100, 2048)])
def test_the_first_samples_of_a_block_are_the_same_however_many_are_taken(first, last, monkeypatch):
    model = RecencyModel(tokens=4, dimension=6, order="post", residual=True)
    begun = gram.run_block(model, 2, 1, first)
    scores, attention = references(model, 2, 1, last)[0]
    begun.merge(Tally.of_scores(scores[:, first:], attention[:, first:]))
    whole = gram.run_block(model, 2, 1, last)
    assert close(begun, whole, 1e-10)

    draw_block = gram.draw_block

    def spoilt(*block):
        normals, chis = draw_block(*block)
        normals[:, last:], chis[:, last:] = np.nan, np.nan
        return normals, chis

    monkeypatch.setattr(gram, "draw_block", spoilt)
    again = gram.run_block(model, 2, 1, last)
    assert all(np.array_equal(getattr(whole, moment), getattr(again, moment)) for moment in MOMENTS)


# --- parts of the fast engine ------------------------------------------------------------------------------


def test_exponentials_are_right_to_two_units_in_the_last_place():
    rng = np.random.default_rng(0)
    half = np.arange(1, 2017) * math.log(2) / 2  # where the nearest power of two changes
    ends = [0.0, -0.0, 1e-16, 3e-15, 1e-12, -700.0, -700.5, -1e4, -1e300, -np.inf]
    drawn = [np.linspace(0.0, 700.0, 200_001), 10.0 ** rng.uniform(-320, 2.8, 100_000)]
    x = np.concatenate(
        [ends, *(-one for one in drawn), *(-half * (1 + sign * 2.0**-50) for sign in (-1, 0, 1))]
    )
    found = x.copy()
    gram.exponentials(found, np.empty_like(x))
    exact = np.exp(np.maximum(x, -700.0))
    assert (np.abs(found - exact) / np.spacing(exact)).max() <= 2.0
    assert found[:2].tolist() == [1.0, 1.0]


DRAWN = [
    RecencyModel(tokens=5, dimension=16),
    RecencyModel(tokens=5, dimension=16, order="post"),
    RecencyModel(tokens=4, dimension=9, norm="rmsnorm", anisotropy=0.9),
    RecencyModel(tokens=6, dimension=3, anisotropy=0.3),
    RecencyModel(tokens=6, dimension=1, norm="none", anisotropy=0.0),
    RecencyModel(tokens=3, dimension=64, norm="none", anisotropy=0.6),
]


@pytest.mark.parametrize("model", DRAWN, ids=lambda m: f"{m.norm}-{m.order}-n{m.tokens}-d{m.dimension}")
def test_drawn_inner_products_have_the_means_and_covariances_of_wishart(model):
    """Inner products W over ν coordinates: E W = νΣ/d, Cov(W_ij, W_kl) = ν(Σ_ikΣ_jl + Σ_ilΣ_jk)/d²."""
    parts = [factors(model, 11, block, gram.BLOCK) for block in range(10)]
    bartlett, along = (np.concatenate(part) for part in zip(*parts, strict=True))
    tokens, d = model.tokens, model.dimension
    covariance = np.eye(tokens) + model.anisotropy / (1 - model.anisotropy)
    i, j = np.tril_indices(tokens)
    drawn = [(bartlett @ bartlett.swapaxes(1, 2), model.freedom)]
    if gram.extra_coordinates(model):
        drawn.append((drawn[0][0] + along[:, :, None] * along[:, None, :], d))
    assert drawn[-1][1] == d - (model.norm == "layernorm" and model.order == "pre")
    for products, freedom in drawn:
        centred = products[:, i, j] - freedom * covariance[i, j] / d
        assert np.abs(z(centred)).max() <= 4.0
        s = covariance
        expected = freedom * (s[np.ix_(i, i)] * s[np.ix_(j, j)] + s[np.ix_(i, j)] * s[np.ix_(j, i)]) / d**2
        pairs = centred[:, :, None] * centred[:, None, :] - expected
        assert np.abs(z(pairs)).max() <= 4.0
        # a degree of freedom more or less would be seen
        assert np.abs(z(centred + covariance[i, j] / d)).max() > 10.0


def z(samples: np.ndarray) -> np.ndarray:
    """Means of samples (first axis) in units of their standard errors."""
    return samples.mean(axis=0) / samples.std(axis=0, ddof=1) * math.sqrt(len(samples))
