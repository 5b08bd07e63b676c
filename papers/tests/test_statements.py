"""Every numbered statement: verdicts both ways, counterexamples, instances as files, mistakes that are caught."""

import json
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from posbias.theory import critical_distances
from posbias.theory.masks import Causal, Full
from posbias_papers.closed_forms import bounds, layernorm
from posbias_papers.simulation import Variant
from posbias_papers.statements import (
    STATEMENTS,
    check,
    herasimchyk2026,
    kim2026,
    margins,
    save_counterexamples,
    verify,
    wu2025,
)
from posbias_papers.statements.draws import Sampler
from posbias_papers.statements.trials import plain

BY_KEY = {statement.key: statement for statement in STATEMENTS}
QUICK = [key for key, one in BY_KEY.items() if one.source != "kim2026"]
FAILING = [key for key, one in BY_KEY.items() if one.witness]
STRICTER = {
    "herasimchyk-4.5-layerwise",
    "herasimchyk-5.4-ii-network",
    "herasimchyk-A.1.2",
    "kim-theorem-1-draws",
}
"""Statements whose corrected reading has another hypothesis, which the witness does not satisfy."""


def reverse(original):
    return lambda first, second: original(second, first)


def caught(key, instances):
    """Whether the reading that stands fails on instances drawn, the theory it rests on being wrong."""
    return check(BY_KEY[key], instances, 0, bool(BY_KEY[key].corrected)).verdict == "fails"


@pytest.mark.parametrize("key", BY_KEY)
def test_a_statement_has_its_verdict_as_printed_and_as_corrected(key, tmp_path):
    statement, fails = BY_KEY[key], key in FAILING
    (finding,) = verify([statement], instances=24 if statement.source == "kim2026" else 100, seed=7)
    assert (finding.verdict, finding.standing.verdict) == ("fails" if fails else "holds", "holds")
    assert bool(finding.corrected) == bool(statement.corrected) == fails
    paths = save_counterexamples([finding], tmp_path)
    assert len(paths) == fails
    for path in paths:
        saved = json.loads(path.read_text())
        assert statement.slack(saved["instance"]) == saved["slack"] < -0.01
        assert key in STRICTER or statement.slack(saved["instance"], corrected=True) >= -statement.tolerance


@pytest.mark.parametrize("key", QUICK)
@given(seed=st.integers(0, 2**32 - 1), edge=st.booleans())
@examples(60)
def test_the_standing_reading_holds_whatever_the_seed(key, seed, edge):
    statement, instance = BY_KEY[key], BY_KEY[key].draw(Sampler(np.random.default_rng(seed), edge))
    json.dumps(plain(instance), allow_nan=False)
    assert statement.slack(instance, bool(statement.corrected)) >= -statement.tolerance


# --- mistakes that must be caught ------------------------------------------------------------------------------


def times(factor):
    return lambda original: lambda *given, **more: factor * original(*given, **more)


def plus(more):
    return lambda original: lambda *given: original(*given) + more


def rates(lower, upper):
    """An envelope whose rates are multiplied."""

    def change(one):
        return replace(one, lower_rate=lower * one.lower_rate, upper_rate=upper * one.upper_rate)

    return lambda original: lambda *given: change(original(*given))


@pytest.mark.parametrize(
    ("key", "module", "name", "change"),
    [
        ("herasimchyk-5.3-i-residual", bounds, "hidden_state_bound", times(0.99)),
        # values that leave the stream alone
        ("herasimchyk-5.3-i", herasimchyk2026, "_run", lambda f: lambda whole, **of: f(**of)),
        ("herasimchyk-5.4-ii-network", herasimchyk2026, "_run", lambda f: lambda whole, **of: f(**of)),
        ("herasimchyk-5.3-ii", bounds, "log_attention_floor", plus(0.01)),
        ("herasimchyk-5.4-i", bounds, "self_bound", times(1.01)),
        ("herasimchyk-5.4-ii", bounds, "exponential_bound", times(0.99)),
        ("herasimchyk-5.4-ii-attention-only", bounds, "exponential_bound", times(0.99)),
        ("herasimchyk-5.4-ii-attention-only", bounds, "log_collapse_bound", plus(0.01)),
        ("herasimchyk-5.4-ii-window", bounds, "window_bound", times(0.99)),
        ("herasimchyk-5.1-values", bounds, "hidden_state_bound", times(0.99)),
        ("wu-A.1", bounds, "log_attention_floor", plus(1e-6)),
        ("wu-4.1", bounds, "log_collapse_bound", lambda f: lambda e, *j: f(np.minimum(1.001 * e, 1), *j)),
        ("wu-4.2", bounds, "log_block_bound", lambda f: lambda *a: 1.001 * f(*a) - 1e-6),
        ("wu-4.3", bounds, "log_collapse_bound", times(1.001)),
        ("wu-4.3", bounds, "prefix_share", times(1.001)),
        ("wu-B.1", bounds, "hops", lambda f: lambda *a: max(f(*a) - 1, 1)),
        ("wu-B.2", bounds, "log_block_bound", lambda f: lambda *a: 1.001 * f(*a) - 1e-6),
        ("wu-4.4", bounds, "decay_envelope", rates(0.999, 1.0)),
        ("wu-4.5", bounds, "decay_envelope", rates(1.0, 1.001)),
        ("wu-4.5", bounds, "log_walks", lambda f: lambda depth, d: f(max(depth - 1, 1), d)),
        ("wu-4.5-distance", critical_distances, "modal_distance", plus(1)),
        ("wu-4.5-distance", critical_distances, "critical_distance", plus(0.6)),
        ("wu-4.6", bounds, "rope_envelope", rates(1.0, 6.0)),
        ("wu-4.7", bounds, "rope_envelope", rates(0.1, 1.0)),
        ("wu-I.1", bounds, "rope_envelope", rates(1.0, 6.0)),
        ("wu-I.2", bounds, "rope_envelope", rates(1.0, 6.0)),
        ("wu-4-selection", wu2025, "rollouts", lambda f: lambda kernels: f(kernels[::-1])),
        ("wu-4.1-relu-apart", wu2025, "_relu_kernels", lambda f: lambda logits: f(abs(logits))),
        ("wu-4.7-distance", critical_distances, "rope_critical_distance", times(1.001)),
        ("wu-4.7-distance", critical_distances, "rope_modal_distance", plus(1)),
        # dominance the wrong way round
        *(
            (f"herasimchyk-{key}", margins, "order_margin", reverse)
            for key in ("A.2", "A.4", "4.2", "4.3", "4.4", "4.5", "4.5-layerwise", "A.1.2")
        ),
    ],
)
def test_a_bound_slightly_too_tight_is_caught(key, module, name, change, monkeypatch):
    monkeypatch.setattr(module, name, change(getattr(module, name)))
    assert caught(key, 200)


@pytest.mark.parametrize("key", ["A.2", "A.3", "A.5", "4.2", "4.3", "4.4", "4.5", "5.1"])
def test_without_monotone_kernels_the_statements_fail(key, monkeypatch):
    def any_kernel(s, ahead=False):
        tokens, width = s.size
        last = np.full(tokens, tokens) if ahead else np.arange(1, tokens + 1)
        return np.eye(tokens)[s.rng.integers(0 if ahead else np.maximum(0, last - width), last)]

    monkeypatch.setattr(Sampler, "monotone", any_kernel)
    assert caught(f"herasimchyk-{key}", 200)


def scaled_rise(factor):
    return lambda original: property(lambda form: factor * original.fget(form))


def tilted(original):
    return lambda *given, **more: (s := original(*given, **more)) * (1.0 + 1e-9 * np.arange(s.shape[-1]))


def first_for_second(original):
    return lambda variant, *sizes: [[layers[0], layers[0]] for layers in original(variant, *sizes)]


def by_place(original):
    def layers(variant, *sizes):
        (first, second), content = original(variant, *sizes)
        return [first + np.arange(first.shape[-1])[:, None], second], content

    return layers


@pytest.mark.parametrize(
    ("key", "owner", "name", "change"),
    [
        *(
            (key, layernorm.SecondLayer, "log_rise", scaled_rise(factor))
            for key in ("theorem-1", "proposition-2", "proposition-3")
            for factor in (-1.0, 0.0)
        ),
        ("theorem-1-draws", layernorm, "fluctuation_factor", lambda _: lambda *given: 1.0),
        ("theorem-1-draws", kim2026, "first_order", times(-1.0)),
        ("equation-19", kim2026, "closed_scores", times(2.0)),
        ("equation-42", layernorm, "fluctuation_factor", lambda _: lambda *given: 1.0),
        ("figure-2", kim2026, "cross_weight", times(0.5)),
        ("proposition-1", kim2026, "limit_scores", tilted),
        ("section-3", kim2026, "limit_scores", tilted),
        ("2.2-layernorm", kim2026, "normalised", times(1.1)),
        ("2.2-layernorm", kim2026, "embeddings", plus(0.05)),
        ("3-cosine", kim2026, "embeddings", plus(0.05)),
        (
            "3-shared",
            kim2026,
            "hidden_states",
            lambda f: lambda model, x: f(replace(model, residual=False), x),
        ),
        ("4-length", kim2026, "recency_share", lambda f: lambda scores: 1.0 - f(scores)),
        *(
            (key, kim2026, "second_layer", first_for_second)
            for key in ("4-heads", "4-relative", "limitations-encodings", "limitations-parts")
        ),
        ("4-head-dimension", kim2026, "second_layer", lambda f: lambda v, *n: f(Variant(v.model), *n)),
        ("4-relative", kim2026, "second_layer", by_place),
        ("4-masks", kim2026, "SlidingWindow", lambda f: lambda width: Causal()),
        ("4-masks", kim2026, "Full", lambda f: Causal),
        ("4-masks", kim2026, "Causal", lambda f: Full),
    ],
)
def test_a_wrong_model_of_layernorm_is_caught(key, owner, name, change, monkeypatch):
    monkeypatch.setattr(owner, name, change(getattr(owner, name)))
    assert caught(f"kim-{key}", 40)
