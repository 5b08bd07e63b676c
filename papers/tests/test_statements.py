"""Every numbered statement: verdicts both ways, counterexamples, instances as files, mistakes that are caught."""

import json

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.profiles import stochastic_order
from posbias.theory import critical_distances
from posbias.theory.masks import Causal, Full
from posbias_papers.closed_forms import bounds, layernorm
from posbias_papers.simulation.variants import Variant
from posbias_papers.statements import STATEMENTS, check, draws, save_counterexamples, select, verify
from posbias_papers.statements import kim2026_layernorm as kim
from posbias_papers.statements import kim2026_variants as variants
from posbias_papers.statements.trials import plain

BY_KEY = {statement.key: statement for statement in STATEMENTS}
QUICK = [one for one in STATEMENTS if one.source != "kim2026"]
FAILING = [one for one in STATEMENTS if one.corrected]


def keys(statements):
    return [one.key for one in statements]


def standing(key):
    return BY_KEY[key].corrected or BY_KEY[key].as_printed


def caught(key, instances):
    """Whether the reading that stands fails on instances drawn, the theory it rests on being wrong."""
    return check(standing(key), instances, 0, f"wrong/{key}").counterexample is not None


@pytest.mark.parametrize("statement", STATEMENTS, ids=keys(STATEMENTS))
def test_a_statement_has_its_verdict_as_printed_and_as_corrected(statement, tmp_path):
    (finding,) = verify([statement], instances=24 if statement.source == "kim2026" else 100, seed=7)
    fails = statement.corrected is not None
    assert (finding.verdict, finding.corrected_verdict) == (("fails", "holds") if fails else ("holds", None))
    paths = save_counterexamples([finding], tmp_path)
    assert len(paths) == fails
    for path in paths:
        saved = json.loads(path.read_text())
        assert (
            statement.as_printed.slack(saved["instance"]) == saved["slack"] < -statement.as_printed.tolerance
        )


@pytest.mark.parametrize("statement", FAILING, ids=keys(FAILING))
def test_a_witness_fails_as_printed_and_not_as_corrected(statement):
    printed, corrected = statement.as_printed, statement.corrected
    witness = json.loads(json.dumps(plain(statement.witness), allow_nan=False))
    assert printed.slack(witness) < -0.01
    if printed.draw is corrected.draw:  # else it need not satisfy the hypotheses of what is corrected
        assert corrected.slack(witness) >= -corrected.tolerance


@pytest.mark.parametrize("statement", QUICK, ids=keys(QUICK))
@given(seed=st.integers(0, 2**32 - 1), edge=st.booleans())
@examples(60)
def test_the_standing_reading_holds_whatever_the_seed(statement, seed, edge):
    reading = standing(statement.key)
    assert reading.slack(reading.draw(np.random.default_rng(seed), edge)) >= -reading.tolerance


def test_statements_are_found_by_key_and_by_paper():
    assert select(STATEMENTS, ["wu-4.1", "wu-4.1"]) == [BY_KEY["wu-4.1"]]
    assert select(STATEMENTS, ["kim2026"]) == [one for one in STATEMENTS if one.source == "kim2026"]
    with pytest.raises(InvalidValueError, match=r"wu-4\.1"):
        select(STATEMENTS, ["wu-4-1"])


# --- mistakes that must be caught ------------------------------------------------------------------------------


def scaled_envelope(lower=1.0, upper=1.0):
    def change(original):
        def envelope(*args):
            one = original(*args)
            rates = lower * one.lower_rate, upper * one.upper_rate
            return bounds.Envelope(one.log_lower, one.log_upper, *rates, one.power)

        return envelope

    return change


def times(factor):
    return lambda original: lambda *given, **more: factor * original(*given, **more)


def plus(more):
    return lambda original: lambda *given: original(*given) + more


@pytest.mark.parametrize(
    ("key", "module", "name", "change"),
    [
        ("herasimchyk-5.3-i", bounds, "hidden_state_bound", times(0.99)),
        ("herasimchyk-5.3-ii", bounds, "log_attention_floor", plus(0.01)),
        ("herasimchyk-5.4-i", bounds, "self_bound", times(1.01)),
        ("herasimchyk-5.4-ii", bounds, "exponential_bound", times(0.99)),
        ("herasimchyk-5.4-ii-attention-only", bounds, "exponential_bound", times(0.99)),
        ("herasimchyk-5.4-ii-attention-only", bounds, "log_collapse_bound", plus(0.01)),
        ("herasimchyk-5.4-ii-window", bounds, "window_bound", times(0.99)),
        ("herasimchyk-5.1-values", bounds, "hidden_state_bound", times(0.99)),
        ("wu-A.1", bounds, "log_attention_floor", plus(1e-6)),
        (
            "wu-4.1",
            bounds,
            "log_collapse_bound",
            lambda f: lambda e, j, *more: f(np.minimum(1.001 * e, 1), j, *more),
        ),
        ("wu-4.2", bounds, "log_window_bound", lambda f: lambda *a: 1.001 * f(*a) - 1e-6),
        ("wu-4.3", bounds, "log_collapse_bound", times(1.001)),
        ("wu-4.3", bounds, "prefix_share", times(1.001)),
        ("wu-B.1", bounds, "hops", lambda f: lambda *a: max(f(*a) - 1, 0)),
        ("wu-B.2", bounds, "log_window_bound", lambda f: lambda *a: 1.001 * f(*a) - 1e-6),
        ("wu-4.4", bounds, "decay_envelope", scaled_envelope(lower=0.999)),
        ("wu-4.5", bounds, "decay_envelope", scaled_envelope(upper=1.001)),
        ("wu-4.5", bounds, "log_walks", lambda f: lambda depth, d: f(max(depth - 1, 1), d)),
        ("wu-4.5-distance", critical_distances, "modal_distance", plus(1)),
        ("wu-4.5-distance", critical_distances, "critical_distance", plus(0.6)),
        ("wu-4.6", bounds, "rope_envelope", scaled_envelope(upper=6.0)),
        ("wu-I.1", bounds, "rope_envelope", scaled_envelope(upper=6.0)),
        ("wu-4.7", bounds, "rope_envelope", scaled_envelope(lower=0.1)),
        ("wu-I.2", bounds, "rope_envelope", scaled_envelope(upper=6.0)),
        ("wu-4.7-distance", critical_distances, "rope_critical_distance", times(1.001)),
        ("wu-4.7-distance", critical_distances, "rope_modal_distance", plus(1)),
    ],
)
def test_a_bound_slightly_too_tight_is_caught(key, module, name, change, monkeypatch):
    monkeypatch.setattr(module, name, change(getattr(module, name)))
    assert caught(key, 200)


@pytest.mark.parametrize("key", ["A.2", "A.4", "4.2", "4.3", "4.4", "4.5", "4.5-layerwise", "A.1.2"])
def test_dominance_the_wrong_way_round_is_caught(key, monkeypatch):
    forwards = stochastic_order.dominance
    monkeypatch.setattr(stochastic_order, "dominance", lambda later, earlier: forwards(earlier, later))
    assert caught(f"herasimchyk-{key}", 200)


@pytest.mark.parametrize("key", ["A.2", "A.3", "A.5", "4.2", "4.3", "4.4", "4.5", "5.1"])
def test_without_monotone_kernels_the_statements_fail(key, monkeypatch):
    def any_kernel(rng, tokens, width, edge, ahead=False):
        last = np.full(tokens, tokens) if ahead else np.arange(1, tokens + 1)
        first = np.zeros(tokens, dtype=int) if ahead else np.maximum(0, last - width)
        return np.eye(tokens)[rng.integers(first, last)]

    monkeypatch.setattr(draws, "monotone", any_kernel)
    assert caught(f"herasimchyk-{key}", 200)


def published(name):
    """A closed form whose printed reading stands in for the corrected one."""
    right = getattr(layernorm, name)
    return lambda original: lambda *given, reading="corrected": right(*given, reading="published")


def scaled_rise(factor):
    return lambda original: property(lambda form: factor * original.fget(form))


def rise_of_means(original):
    def rise(form):
        model = form.tokens, form.dimension, form.anisotropy
        means = layernorm.limit_scores(2, *model, residual=form.residual)[1, -1]
        return np.log(means / means[0])

    return property(rise)


def tilted(original):
    def scores(*given, **more):
        right = original(*given, **more)
        return right + 1e-9 * np.abs(np.diagonal(right, axis1=1, axis2=2)).max() * np.arange(right.shape[-1])

    return scores


def without_stream(original):
    def states(model, x):
        right = original(model, x)
        if model.residual:  # what attention adds to the stream alone
            right[1] -= right[0]
        return right

    return states


def reversed_shares(original):
    return lambda scores: 1.0 - original(scores)


def first_for_second(original):
    return lambda variant, *sizes: [[layers[0], layers[0]] for layers in original(variant, *sizes)]


def by_place(original):
    def layers(variant, *sizes):
        scores, content = original(variant, *sizes)
        return [scores[0] + np.arange(variant.model.tokens)[:, None], scores[1]], content

    return layers


@pytest.mark.parametrize(
    ("key", "module", "name", "change"),
    [
        *(
            (f"kim-{key}", layernorm.SecondLayer, "log_rise", scaled_rise(factor))
            for key in ("theorem-1", "proposition-2", "proposition-3")
            for factor in (-1.0, 0.0)
        ),
        ("kim-theorem-1-draws", kim, "isotropic_scores", published("isotropic_scores")),
        ("kim-theorem-1-draws", kim, "first_order", times(-1.0)),
        ("kim-equation-19", kim, "scores_without_layernorm", published("scores_without_layernorm")),
        ("kim-equation-42", layernorm.SecondLayer, "log_rise", rise_of_means),
        ("kim-figure-2", kim, "cross_weight", times(0.5)),
        ("kim-proposition-1", kim, "limit_scores", tilted),
        ("kim-section-3", kim, "limit_scores", tilted),
        ("kim-2.2-layernorm", variants, "normalised", times(1.1)),
        ("kim-2.2-layernorm", variants, "embeddings", plus(0.05)),
        ("kim-3-cosine", variants, "embeddings", plus(0.05)),
        ("kim-3-shared", variants, "hidden_states", without_stream),
        ("kim-4-heads", variants, "recency_share", reversed_shares),
        ("kim-limitations-encodings", variants, "recency_share", reversed_shares),
        ("kim-limitations-parts", variants, "recency_share", reversed_shares),
        ("kim-4-length", variants, "recency_shares", reversed_shares),
        *(
            (f"kim-{key}", variants, "second_layer", first_for_second)
            for key in ("4-heads", "4-relative", "limitations-encodings", "limitations-parts")
        ),
        ("kim-4-head-dimension", variants, "second_layer", lambda f: lambda v, *n: f(Variant(v.model), *n)),
        ("kim-4-relative", variants, "second_layer", by_place),
        ("kim-4-masks", variants, "SlidingWindow", lambda f: lambda width: Causal()),
        ("kim-4-masks", variants, "Full", lambda f: Causal),
        ("kim-4-masks", variants, "Causal", lambda f: Full),
    ],
)
def test_a_wrong_model_of_layernorm_is_caught(key, module, name, change, monkeypatch):
    monkeypatch.setattr(module, name, change(getattr(module, name)))
    assert caught(key, 40)
