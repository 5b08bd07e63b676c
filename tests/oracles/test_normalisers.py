"""Rows of attention by softmax with a sink, ReLU, sigmoid and without a normaliser.

Against loops, recurrences and automatic differentiation.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.core.spec import decode, encode, fingerprint
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.content import ConstantDiagonal
from posbias.theory.encodings import ALiBi, DecayBias, KerpleLog, NoPE, Tabulated
from posbias.theory.masks import Causal, CustomMask, Full, Prefix, SlidingWindow
from posbias.theory.mixing import AttentionOnly, ConstantMixing
from posbias.theory.normalisers import NORMALISERS, ReLU, Sigmoid, Softmax, Unnormalised
from posbias.theory.rollout import influence
from posbias.theory.rollout.kernel import layer_kernel
from posbias.training.attention import SinkSoftmax, rows, scores_gradient
from posbias.training.experiments import compatible, experiment_of, words_of
from posbias.training.network import Network

TRAINED = (SinkSoftmax(), SinkSoftmax(-3.0), SinkSoftmax(2.0, learned=True), ReLU(), Sigmoid(), Sigmoid(0.5))


def row_by_hand(kind, logits, allowed, tokens, sink=None, bias=None):
    """A row of attention in plain Python, from its equation."""
    seen = [j for j in range(len(logits)) if allowed[j]]
    out = [0.0] * len(logits)
    if kind == "sigmoid":
        shift = -math.log(tokens) if bias is None else bias
        for j in seen:
            out[j] = 1.0 / (1.0 + math.exp(-logits[j] - shift))
        return out
    if kind == "unnormalised":
        for j in seen:
            out[j] = math.exp(logits[j])
        return out
    weigh = {"softmax": math.exp, "relu": lambda logit: max(logit, 0.0)}[kind]
    total = sum(weigh(logits[j]) for j in seen) + (0.0 if sink is None else math.exp(sink))
    for j in seen:
        out[j] = weigh(logits[j]) / total if total > 0 else 0.0
    return out


@st.composite
def stacks(draw):
    """An architecture of one to three layers, rows of which sum to one at most, and a length of text."""
    tokens = draw(st.integers(1, 14))
    masks = [
        Causal(),
        SlidingWindow(draw(st.integers(1, 6)), draw(st.integers(0, 2))),
        Prefix(draw(st.integers(1, tokens))),
        Full(),
        CustomMask(lambda query, key: (key <= query) & ((key == query) | ((query + key) % 3 == 0))),
    ]
    # sums of sigmoids stay below one where logits are below zero, those of exponentials below −2·ln 14
    cls = draw(st.sampled_from(NORMALISERS))
    normaliser = Sigmoid(-4.0 if draw(st.booleans()) else None) if cls is Sigmoid else cls()
    level = draw(st.floats(*{Sigmoid: (-3, 0), Unnormalised: (-9, -5.3)}.get(cls, (-2, 3))))
    extra = 0.0 if cls in (Sigmoid, Unnormalised) else draw(st.floats(-3, 3))
    layer = Layer(
        heads=draw(st.integers(1, 3)),
        mask=draw(st.sampled_from(masks)),
        positional=draw(st.sampled_from([NoPE(), DecayBias(0.3), KerpleLog((0.5,))])),
        content=ConstantDiagonal((extra,), (level,), (-extra / 2,)),
        temperature=draw(st.sampled_from([1.0, 2.0])),
        sinks=(draw(st.floats(-4, 4)),) if cls is Softmax and draw(st.booleans()) else None,
        normaliser=normaliser,
    )
    mixing = draw(st.sampled_from([AttentionOnly(), ConstantMixing(0.3)]))
    return Architecture(draw(st.integers(1, 3)), (layer,), mixing), tokens


def kernel_by_hand(layer, tokens):
    """The layer's kernel pair by pair, every logit with its constant."""
    content, bias = layer.content, layer.positional
    allowed = layer.mask.allowed(tokens)
    kernel = np.zeros((tokens, tokens))
    for query in range(tokens):
        logits = [
            float(bias.logits_at(np.array([query - key]), 1)[0, 0])
            + content.constant[0]
            + content.diagonal[0] * (key == query)
            + content.first_column[0] * (key == 0)
            for key in range(tokens)
        ]
        logits = [logit / layer.temperature for logit in logits]
        sink = None if layer.sinks is None else layer.sinks[0]
        shift = getattr(layer.normaliser, "bias", None)
        kernel[query] = row_by_hand(layer.normaliser.kind, logits, allowed[query], tokens, sink, shift)
    return kernel


@given(stacks(), st.data())
def test_rollouts_are_products_of_rows_made_by_hand(stack, data):
    architecture, tokens = stack
    query = data.draw(st.integers(0, tokens - 1))
    row = np.eye(tokens)[query]
    for layer, lam in zip(architecture.stack[::-1], architecture.coefficients[::-1], strict=True):
        kernel = kernel_by_hand(layer, tokens)
        assert np.allclose(layer_kernel(layer, tokens), kernel, rtol=1e-12, atol=1e-15)
        row = (1 - lam) * row + lam * row @ kernel
    profile = influence(architecture, tokens, query, threads=1)
    assert np.allclose(profile.mass, row, rtol=1e-12, atol=1e-15)
    assert profile.missing_mass == pytest.approx(1 - row.sum(), abs=1e-12)


@given(
    st.lists(
        st.floats(-5, 5, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-9),
        min_size=1,
        max_size=12,
    )
)
def test_relu_keeps_positive_logits_alone_and_softmax_keeps_every_edge(logits):
    row = np.array(logits)
    kept = ReLU().weights_of(row)
    assert ((kept > 0) == (row > 0)).all()
    assert kept.sum() == pytest.approx(1.0 if (row > 0).any() else 0.0)
    assert (Softmax().weights_of(row) > 0).all()
    assert np.allclose(ReLU().weights_of(2.0**-40 * row), kept, rtol=1e-12, atol=1e-200)


@pytest.mark.parametrize(
    ("normaliser", "constant"), [(Sigmoid(), 3.0), (Unnormalised(), 0.0), (Unnormalised(), 800.0)]
)
def test_a_row_that_sums_to_more_than_one_makes_no_profile(normaliser, constant):
    layer = Layer(content=ConstantDiagonal((0.0,), (constant,)), normaliser=normaliser)
    with pytest.raises(InvalidValueError, match="normaliser: the row of query 8 sums to"):
        influence(Architecture(1, (layer,), AttentionOnly()), 9)


@st.composite
def recurrences(draw):
    """What heads remember from token to token, what each lets in, λ, depth and a length of text."""
    heads = draw(st.integers(1, 3))
    kept = draw(st.lists(st.floats(0.01, 1), min_size=heads, max_size=heads))
    tokens = draw(st.integers(1, 40))
    # so much that no row exceeds one
    room = [1 / sum(one**d for d in range(tokens)) for one in kept]
    gains = [most * draw(st.floats(0.05, 1 - 1e-9)) for most in room]
    return kept, gains, draw(st.floats(0, 1)), draw(st.integers(1, 4)), tokens


@given(recurrences())
def test_decay_kernels_are_states_that_forget(recurrence):
    """Layers x ← (1 − λ)x + λ·mean_h s_h with s_h ← γ_h·s_h + g_h·x, run token by token on a one at each token."""
    kept, gains, lam, depth, tokens = recurrence
    content = ConstantDiagonal((0.0,), tuple(np.log(gains).tolist()))
    rates = ALiBi(tuple((-np.log(kept)).tolist()))
    layer = Layer(len(kept), positional=rates, content=content, normaliser=Unnormalised())
    profile = influence(Architecture(depth, (layer,), ConstantMixing(lam)), tokens, threads=1)
    reached = []
    for key in range(tokens):
        stream = [float(token == key) for token in range(tokens)]
        for _ in range(depth):
            states, after = [0.0] * len(kept), []
            for entering in stream:
                states = [
                    rate * state + gain * entering
                    for rate, state, gain in zip(kept, states, gains, strict=True)
                ]
                after.append((1 - lam) * entering + lam * sum(states) / len(states))
            stream = after
        reached.append(stream[-1])
    np.testing.assert_allclose(profile.mass, reached, rtol=1e-12, atol=1e-250)
    assert profile.missing_mass == pytest.approx(1 - math.fsum(reached), abs=1e-12)


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=5), st.integers(1, 6), st.integers(1, 30))
def test_short_convolutions_end_hard_and_lack_what_is_before_the_text(weights, depth, tokens):
    """Against repeated `numpy.convolve`: nothing beyond depth·(k − 1), what stood before token 0 is missing."""
    weights = np.array(weights) / sum(weights) * (1 - 1e-15)
    table = Tabulated(tuple(np.log(weights).tolist()))
    layer = Layer(mask=SlidingWindow(len(weights)), positional=table, normaliser=Unnormalised())
    profile = influence(Architecture(depth, (layer,), AttentionOnly()), tokens, threads=1)
    by_distance = np.ones(1)
    for _ in range(depth):
        by_distance = np.convolve(by_distance, weights)
    expected = np.zeros(max(tokens, len(by_distance)))
    expected[: len(by_distance)] = by_distance
    np.testing.assert_allclose(profile.mass[::-1], expected[:tokens], rtol=1e-12, atol=1e-250)
    assert profile.missing_mass == pytest.approx(1 - expected[:tokens].sum(), abs=1e-12)


def test_sinks_belong_to_a_softmax():
    with pytest.raises(InvalidValueError, match="sinks: given with the normaliser relu"):
        Layer(sinks=(0.0,), normaliser=ReLU())


def test_a_softmax_is_written_as_before_there_were_others():
    assert "normaliser" not in encode(Layer())
    assert "normaliser" not in encode(Network())
    # fingerprints of records and of architectures from before
    assert fingerprint(Network()) == fingerprint(
        {"depth": 2, "residual": False, "mask": {"kind": "causal"}, "positional": {"kind": "nope"}}
    )
    layers = (Layer(normaliser=ReLU()), Layer(normaliser=Unnormalised()), Layer())
    for value in (*layers, Network(normaliser=SinkSoftmax(1.0, True)), Network()):
        assert decode(type(value), encode(value)) == value


def test_files_name_normalisers_in_words():
    one, other = (experiment_of({"network": {"normaliser": word}}) for word in ("relu", "off_by_one"))
    assert one.network.normaliser == ReLU()
    assert words_of(one) == "causal-none-depth2-relu"
    assert other.network.normaliser == SinkSoftmax(0.0)
    assert words_of(experiment_of({})) == "causal-none-depth2"
    with pytest.raises(InvalidValueError, match="did you mean 'sigmoid'"):
        experiment_of({"network": {"normaliser": "sigmoyd"}})
    assert compatible(one, one)
    assert not compatible(one, other)


@st.composite
def problems(draw):
    """Scores under a mask that lets tokens see themselves, the sink's logits, and a gradient; float64."""
    members, sequences, tokens = (draw(st.integers(1, most)) for most in (2, 3, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    allowed = (rng.random((members, 1, tokens, tokens)) < draw(st.floats(0, 1))) | np.eye(tokens, dtype=bool)
    scores = draw(st.sampled_from([0.1, 1.0, 20.0])) * rng.normal(size=(members, sequences, tokens, tokens))
    scores = np.where(allowed, scores, -np.inf)
    return tuple(map(torch.tensor, (scores, rng.normal(size=members), rng.normal(size=scores.shape))))


@given(problems(), st.sampled_from(TRAINED))
def test_rows_of_networks_are_those_made_by_hand(problem, normaliser):
    scores, sink, _ = problem
    weight, _ = rows(scores, normaliser, sink)
    kind = "softmax" if isinstance(normaliser, SinkSoftmax) else normaliser.kind
    tokens = scores.shape[-1]
    for member, sequence, query in np.ndindex(*scores.shape[:3]):
        logits = scores[member, sequence, query].tolist()
        logit = float(sink[member]) if isinstance(normaliser, SinkSoftmax) else None
        allowed = [logit > -math.inf for logit in logits]
        bias = getattr(normaliser, "bias", None)
        by_hand = row_by_hand(kind, logits, allowed, tokens, logit, bias)
        assert np.allclose(weight[member, sequence, query], by_hand, rtol=1e-12, atol=1e-15)


@given(problems(), st.sampled_from(TRAINED))
def test_gradients_of_scores_and_sinks_are_those_of_automatic_differentiation(problem, normaliser):
    scores, sink, grad = problem
    scores, sink = scores.requires_grad_(), sink.requires_grad_()
    weight, row = rows(scores, normaliser, sink)
    ours, ours_sink = scores_gradient(
        normaliser, weight.detach(), None if row is None else row.detach(), grad
    )
    match normaliser:
        case SinkSoftmax():
            column = sink[:, None, None, None].expand(*scores.shape[:3], 1)
            plain = torch.softmax(torch.cat([column, scores], dim=-1), dim=-1)[..., 1:]
        case ReLU():
            kept = scores.clamp(min=0)
            plain = kept / kept.sum(dim=-1, keepdim=True).clamp(min=1e-300)
        case _:
            shift = -math.log(scores.shape[-1]) if normaliser.bias is None else normaliser.bias
            plain = 1 / (1 + torch.exp(-scores - shift))
    (plain * grad).sum().backward()
    # at a masked score nothing is asked: exp(∞) leaves automatic differentiation no number there
    seen = scores.detach() > -math.inf
    size = 1 + float(scores.grad[seen].abs().max())
    assert float((ours - scores.grad)[seen].abs().max()) <= 1e-11 * size
    assert (ours[~seen] == 0).all()
    if isinstance(normaliser, SinkSoftmax):
        assert np.allclose(ours_sink, sink.grad, rtol=1e-9, atol=1e-12)
    else:
        assert ours_sink is None
