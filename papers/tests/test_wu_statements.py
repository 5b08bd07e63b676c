"""The theorems of Wu et al. 2025: bounds hold, wrong ones are caught, constants and x* agree with mpmath."""

import math

import mpmath
import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.theory import critical_distances
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.distance import RoPE
from posbias.theory.encodings import DecayBias
from posbias.theory.masks import Causal, SlidingWindow
from posbias.theory.mixing import AttentionOnly, ConstantMixing
from posbias.theory.rollout.dispatch import influence
from posbias.theory.rollout.kernel import masked_softmax
from posbias_papers.closed_forms import bounds
from posbias_papers.statements import STATEMENTS
from posbias_papers.statements.draws import Sampler
from posbias_papers.statements.margins import log_softmax

SEEDS = st.integers(0, 2**32 - 1)
BY_KEY = {one.key: one for one in STATEMENTS if one.source == "wu2025"}


def random_stack(seed, mask, tokens, layers, spread=2.0):
    rng = np.random.default_rng(seed)
    return masked_softmax(rng.normal(0, spread, (layers, tokens, tokens)), mask.allowed(tokens))


def brute_rollout(kernels, query, key):
    """P_ij as the sum over all walks of one step per layer, bottom layer first."""
    tokens = len(kernels[0])
    walks = [((key,), 1.0)]
    for kernel in kernels:
        walks = [((*w, i), p * kernel[i][w[-1]]) for w, p in walks for i in range(tokens) if kernel[i][w[-1]]]
    return math.fsum(p for w, p in walks if w[-1] == query)


# --- the table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wu-4.6", "wu-4.7", "wu-I.1", "wu-I.2"])
@given(seed=SEEDS, edge=st.booleans())
@settings(max_examples=15)
def test_drawn_rotary_instances_satisfy_the_hypotheses(kind, seed, edge):
    one = BY_KEY[kind].draw(Sampler(np.random.default_rng(seed), edge))
    queries, keys, angles = one["queries"], one["keys"], one["angles"]
    tokens, first = queries.shape[1], angles.min()
    cosine = np.einsum("tic,tjc->tij", queries, keys) / (
        np.linalg.norm(queries, axis=-1)[:, :, None] * np.linalg.norm(keys, axis=-1)[:, None]
    )
    assert (np.arccos(np.clip(cosine, -1, 1)) <= one["delta"] * first + 1e-7).all()
    if len(angles) == 1:
        assert (one["delta"] + tokens - 1) * first <= np.pi + 1e-9
    else:
        shares = [np.linalg.norm(v.reshape(*v.shape[:-1], -1, 2), axis=-1) / np.linalg.norm(v, axis=-1)[..., None]
                  for v in (queries, keys)]  # fmt: skip
        beta = shares[0].min() * shares[1].min()
        assert (
            one["delta"] * np.pi * first / math.sqrt(beta) + 2 * (tokens - 1) * angles.max()
            <= 2 * np.pi + 1e-9
        )


# --- collapse ----------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(2, 9), st.integers(1, 25), st.floats(0, 6))
@examples(60)
def test_collapse_bound_covers_every_suffix(seed, tokens, depth, spread):
    kernels = random_stack(seed, Causal(), tokens, depth, spread)
    floors = np.array([kernel[np.tri(tokens, dtype=bool)].min() for kernel in kernels])
    mixing = np.random.default_rng(seed).random(depth)
    product, only = np.eye(tokens), np.eye(tokens)
    for layer, (kernel, lam) in enumerate(zip(kernels, mixing, strict=True)):
        product = ((1 - lam) * np.eye(tokens) + lam * kernel) @ product
        only = kernel @ only
        for j in range(tokens):
            bound = np.exp(bounds.log_collapse_bound(floors[: layer + 1], j)[-1])
            assert only[:, j:].sum(axis=1).max() <= bound * (1 + 1e-12)
            mixed = np.exp(bounds.log_collapse_bound(floors[: layer + 1], j, mixing[: layer + 1])[-1])
            assert product[:, j:].sum(axis=1).max() <= mixed * (1 + 1e-12)


@given(st.integers(1, 50), st.floats(0, 400), st.floats(0, 900))
def test_the_floor_is_attained(keys, bound, span):
    logits = np.full((1, keys), bound + span)
    logits[0, 0] = -bound
    found = log_softmax(logits, np.ones((1, keys), dtype=bool))[0, 0]
    assert found == pytest.approx(bounds.log_attention_floor(keys, bound, span), rel=1e-12, abs=1e-14)


# --- envelopes ---------------------------------------------------------------------------------------------


@given(st.integers(1, 100_000), st.integers(0, 100_000))
@settings(max_examples=40)
def test_log_walks_against_mpmath(depth, distance):
    with mpmath.workdps(40):
        exact = mpmath.loggamma(depth + distance) - mpmath.loggamma(depth) - mpmath.loggamma(distance + 1)
        found = bounds.log_walks(depth, np.array([distance, 0]))
        assert abs(found[0] - float(exact)) <= 1e-12 * float(exact) + 1e-30
        assert found[1] == 0


@given(st.integers(2, 30), st.floats(0.5, 400), st.integers(1, 12))
@settings(max_examples=30)
def test_rope_envelope_of_the_package_s_own_rollout(tokens, amplitude, depth):
    angle = np.pi / (tokens - 1)
    layer = Layer(positional=RoPE(((amplitude,),), frequencies=(angle,)))
    mass = influence(Architecture(depth, (layer,), AttentionOnly()), tokens, method="stream").mass[::-1]
    one = np.array([amplitude])
    low, high = bounds.rope_envelope(one, one, np.array([angle]), 0.0, tokens).log_bounds(
        np.arange(tokens), depth
    )
    seen = mass > 1e-290
    assert (np.log(mass[seen]) <= high[seen] + 1e-9).all()
    assert (np.log(mass[seen]) >= low[seen] - 1e-9).all()


# --- critical distances ------------------------------------------------------------------------------------


def real_peak(depth, fall, near):
    """The real x at which log Γ(t+x+1) − log Γ(x+1) − ∫fall is highest, by bisection; 0 if it only falls."""
    t = depth - 1

    def slope(x):
        return mpmath.fsum(1 / (mpmath.mpf(x) + k) for k in range(1, t + 1)) - fall(x)

    if slope(0) <= 0:
        return mpmath.mpf(0)
    low, high = mpmath.mpf(0), mpmath.mpf(near + 2)
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low


@given(st.integers(1, 40), st.floats(0.02, 5))
@settings(max_examples=40)
def test_decay_distance_by_brute_force_and_mpmath(depth, rate):
    star = critical_distances.critical_distance(depth, rate)
    with mpmath.workdps(30):
        assert star == pytest.approx(float((depth - 1) / mpmath.expm1(rate)), rel=1e-14)
        real = real_peak(depth, lambda x: mpmath.mpf(rate), star)
        assert real == 0 or star - 1 < real <= star - 0.5 + 1e-12
        heights = [
            mpmath.log(math.comb(depth - 1 + x, x)) - mpmath.mpf(rate) * x for x in range(int(star) + 20)
        ]
    assert critical_distances.modal_distance(depth, rate) == max(range(len(heights)), key=heights.__getitem__)


@given(st.integers(2, 40), st.floats(0.01, 3), st.floats(0.1, 20))
@settings(max_examples=40)
def test_rope_distance_by_brute_force_and_mpmath(depth, angle, rate):
    star = critical_distances.rope_critical_distance(depth, angle, rate)
    with mpmath.workdps(40):
        theta, c, t = mpmath.mpf(angle), mpmath.mpf(rate), depth - 1
        root = mpmath.findroot(lambda x: mpmath.log(1 + t / x) - 2 * c * theta**2 * x, star)
        assert star == pytest.approx(float(root), rel=1e-13)
        real = real_peak(depth, lambda x: 2 * c * theta**2 * x, star)
        assert real == 0 or star - 1 < real < star
        heights = [mpmath.log(math.comb(t + x, x)) - c * (theta * x) ** 2 for x in range(int(star) + 20)]
        best = critical_distances.rope_modal_distance(depth, angle, rate)
        assert max(heights) - heights[best] < 1e-12
        assert star - 1 < best < star + 0.5


def test_a_decay_rollout_peaks_at_the_modal_distance_and_rope_at_its_drift():
    depths = [1, 2, 3, 5, 8, 12]
    decay = critical_distances.distance_curve(DecayBias(0.1), depths, 400)
    np.testing.assert_array_equal(decay.rollout, decay.modal)
    np.testing.assert_allclose(decay.drift, decay.predicted - 0.5, rtol=1e-9)
    exact = [bounds.log_walks(12, np.arange(100)) - 0.1 * np.arange(100) + 12 * math.log(-math.expm1(-0.1))]
    mass = influence(Architecture(12, (Layer(positional=DecayBias(0.1)),), AttentionOnly()), 1000).mass[::-1]
    np.testing.assert_allclose(np.log(mass[:100]), exact[0], atol=1e-9)
    rope = critical_distances.distance_curve(RoPE(((100.0,),), frequencies=(0.01,)), depths, 300)
    assert (np.abs(rope.rollout - rope.drift)[1:] < 1).all()
    assert (rope.rollout > 2 * rope.predicted)[-2:].all()
    assert (np.abs(rope.modal - rope.predicted) <= 1).all()


# --- beyond the numbered statements --------------------------------------------------------------------------


def test_bounds_on_a_sink_against_walks():
    # window of two and one sink, uniform weights: every token attends to token 0, with a third at the least
    allowed = SlidingWindow(2, sinks=1).allowed(4)
    kernel = masked_softmax(np.zeros((4, 4)), allowed)
    slack = BY_KEY["wu-4.1-masks"].slack({"kernels": [kernel.tolist()], "depth": 3})
    least, margins = kernel[allowed].min(), []
    for t in range(3):
        rows = [[brute_rollout([kernel] * (t + 1), i, j) for j in range(4)] for i in range(4)]
        margins += [1 - math.fsum(row[1:]) / (1 - least) ** (t + 1) for row in rows]
        margins += [1 - least / row[0] for row in rows]
    assert slack == pytest.approx(min(margins), abs=1e-12)


@pytest.mark.parametrize(("kind", "second"), [("log", 0.7), ("power", 0.4), ("power", 1.7)])
def test_kerple_envelopes_against_walks(kind, second):
    tokens, scale, depth = 4, 1.3, 3
    content = np.random.default_rng(3).uniform(-0.4, 0.4, (depth, tokens, tokens))

    def bias(d):
        return scale * (math.log1p(second * d) if kind == "log" else d**second)

    def row(layer, i):
        weights = [math.exp(content[layer, i, j] - bias(i - j)) for j in range(i + 1)]
        return [w / math.fsum(weights) for w in weights] + [0.0] * (tokens - i - 1)

    kernels = [np.array([row(layer, i) for i in range(tokens)]) for layer in range(depth)]
    seen = [content[layer, i, j] for layer in range(depth) for i in range(tokens) for j in range(i + 1)]
    span = max(seen) - min(seen)
    least = math.exp(-span) / math.fsum(math.exp(-bias(d)) for d in range(tokens))
    margins = []
    for T in range(1, depth + 1):
        for i in range(tokens):
            for j in range(i + 1):
                value, d = brute_rollout(kernels[:T], i, j), i - j
                costs = bias(d), T * bias(d / T)
                walks = math.comb(T - 1 + d, d)
                margins.append(1 - walks * least**T * math.exp(-max(costs)) / value)
                margins.append(1 - value / (walks * math.exp(T * span - min(costs))))
    instance = {"content": content, "kind": kind, "scale": scale, "second": second}
    assert BY_KEY["wu-4.5-kerple"].slack(instance) == pytest.approx(min(margins), abs=1e-12)
    assert BY_KEY["wu-4.4-kerple"].slack(instance) >= 0


def test_narrower_windows_against_walks():
    logits, rate, tokens = np.array([[0.3, -1.0, 0.7], [1.2, 0.1, -0.4]]), 0.6, 3
    biased = logits[:, None, :] - rate * np.subtract.outer(np.arange(tokens), np.arange(tokens))
    prefixes = [
        [
            math.fsum(brute_rollout([*kernels[:depth]], i, k) for k in range(j + 1))
            for depth in (1, 2)
            for i in range(tokens)
            for j in range(tokens)
        ]
        for kernels in (masked_softmax(biased, SlidingWindow(width).allowed(tokens)) for width in (2, 3))
    ]
    margins = [(wide - narrow) / max(wide, narrow) for narrow, wide in zip(*prefixes, strict=True)]
    given = {"logits": logits.tolist(), "rate": rate, "narrow": 2, "wide": 3}
    assert BY_KEY["wu-4.2-narrower"].slack(given) == pytest.approx(min(margins), abs=1e-12)


# --- edges: what a centre and a lost edge decide -----------------------------------------------------------

APART = [[1.0, 0.0, 0.0], [-1.0, 2.0, 0.0], [-3.0, 1.0, 1.0]]
"""Logits under which ReLU leaves tokens 1 and 2 no edge to token 0."""
TOGETHER = [[1.0, 0.0, 0.0], [1.0, 2.0, 0.0], [-3.0, 1.0, 1.0]]
"""Logits under which it leaves every token an edge to an earlier one."""
FIRST = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
SECOND = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]


@pytest.mark.parametrize(
    ("key", "instance", "least", "most"),
    [
        # tokens 0 and 1 see each other: both are the centre; without a centre nothing is claimed (slack 1)
        (
            "wu-4.1-masks",
            {"kernels": [[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]], "depth": 8},
            0.0,
            0.99,
        ),
        ("wu-4.1-masks", {"kernels": [np.eye(2).tolist()], "depth": 8}, 1.0, 1.0),
        # two masks that have a centre only together
        ("wu-3.2-masks", {"kernels": [FIRST, SECOND], "depth": 20}, -1e-12, 0.99),
        ("wu-3.2-masks", {"kernels": [FIRST, np.eye(3).tolist()], "depth": 20}, 1.0, 1.0),
        # each claim about ReLU is false of the other one's logits
        ("wu-4.1-relu-apart", {"logits": [APART] * 12}, -1e-12, 0.99),
        ("wu-4.1-relu-apart", {"logits": [TOGETHER] * 6}, -1.0, -1.0),
        ("wu-4.1-relu-reach", {"logits": [TOGETHER] * 6}, 0.0, 0.99),
        ("wu-4.1-relu-reach", {"logits": [APART] * 8}, -math.inf, -0.01),
        # of larger angles RoPE does not decay as slowly
        ("wu-4.6-decay", {"tokens": 2048, "product": 10.0, "angle": 1e-2, "rate": 0.05}, -math.inf, -0.01),
    ],
)
def test_edges_and_angles_decide_what_is_claimed(key, instance, least, most):
    assert least <= BY_KEY[key].slack(instance) <= most


def test_collapse_is_the_rollout_next_to_its_bound():
    layer = Layer(heads=2, positional=DecayBias(0.4))
    architecture = Architecture(6, (layer,), ConstantMixing(0.3))
    (drawn, later, bound), mass = bounds.collapse(architecture, 12, 3), influence(architecture, 12).mass
    assert drawn[-1] == mass[3]
    assert later[-1] == pytest.approx(mass[3:].sum(), rel=1e-14)
    assert (later <= bound * (1 + 1e-12)).all()
    with pytest.raises(InvalidValueError, match=r"^architecture: "):
        bounds.collapse(Architecture(6, (Layer(mask=SlidingWindow(4)),)), 12, 3)
