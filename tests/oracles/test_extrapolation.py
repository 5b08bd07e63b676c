"""Extrapolated profiles against plain loops, exact cases and the trials on record."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from project import ROOT

import calibration
import posbias
from posbias.cli.terminal import verdict_line
from posbias.comparison.extrapolation import (
    BUNDLED,
    RULES,
    continued,
    extrapolate,
    stretched,
    trials,
    won_up_to,
)
from posbias.core.errors import InvalidValueError
from posbias.theory.huggingface import from_huggingface

CURVES = st.lists(st.floats(0.01, 10.0), min_size=32, max_size=48).map(np.array)


def measurement(influence, model="", **more):
    """A measurement of one prompt with this influence."""
    about = {"influence": (("prompt", "position"), np.asarray(influence)[None])}
    return xr.Dataset(about | more, attrs={"model": model})


@given(CURVES, st.integers(1, 5))
def test_a_stretched_share_keeps_its_mass(curve, times):
    tokens = curve.size * times
    mass = stretched(curve, tokens)
    plain = [curve[j // times] / times / curve.sum() for j in range(tokens)]  # each position becomes `times`
    np.testing.assert_allclose(mass, plain, rtol=1e-9)


@given(CURVES, st.integers(0, 90))
def test_stretching_to_any_length_is_a_distribution_with_the_same_shares(curve, more):
    mass = stretched(curve, curve.size + more)
    assert mass.min() > 0
    assert mass.sum() == pytest.approx(1.0, abs=1e-12)
    half = mass.size // 2  # up to the position that the middle cuts
    plain = np.interp(
        half / mass.size, np.linspace(0, 1, curve.size + 1), np.cumsum([0, *curve]) / curve.sum()
    )
    assert mass[:half].sum() == pytest.approx(plain, abs=1e-12)


@given(st.floats(0.0, 3.0), st.integers(32, 96), st.integers(0, 400))
def test_a_power_law_of_the_distance_goes_on_as_it_is(power, measured, more):
    def law(tokens):
        weights = np.maximum(np.arange(tokens)[::-1], 1.0) ** -power
        return weights / weights.sum()

    np.testing.assert_allclose(continued(law(measured), measured + more), law(measured + more), rtol=1e-9)


@given(CURVES, st.integers(1, 100))
def test_both_goes_from_one_to_the_other_and_the_measured_length_is_as_measured(curve, more):
    tokens = curve.size + more
    share, distance = stretched(curve, tokens), continued(curve, tokens)
    last = tokens - 1
    plain = np.array([(share[j] * (last - j) + distance[j] * j) / last for j in range(tokens)])
    np.testing.assert_allclose(extrapolate(measurement(curve), tokens).mass, plain / plain.sum(), rtol=1e-12)
    np.testing.assert_allclose(
        extrapolate(measurement(curve), curve.size).mass, curve / curve.sum(), rtol=1e-12
    )


def test_a_verdict_needs_trials_that_were_won():
    bundled = posbias.load_measurement(BUNDLED)
    times, longest = won_up_to("smollm2-135m", "both")
    assert times >= 2
    assert extrapolate(bundled, 1024).summary.verdict == "U"
    beyond = min(int(512 * times), longest) + 1
    few = bundled.isel(prompt=slice(0, 31))
    for profile in (
        extrapolate(bundled, beyond),
        extrapolate(bundled, 1024, "stretched"),
        extrapolate(few, 1024),
        extrapolate(longer(bundled, longest), longest + 1),
    ):
        assert profile.summary.verdict is None
        assert profile.remainder == "a calibrated curve, untested here"
    assert extrapolate(measurement(np.ones(40), "somebody's"), 80).summary.verdict is None
    other = extrapolate(bundled, 1024, architecture=posbias.preset("llama-3-8b"))
    layers = "smollm2-135m, 30 layers for 32"
    assert other.left_out == (f"what calibrating on another model ({layers}) is worth",)


@pytest.mark.parametrize(
    ("name", "window", "asked", "windows", "rule", "said"),
    [
        ("smollm2-135m", 256, 1024, None, "both", "refused"),
        ("smollm2-135m", 2048, 1024, None, "both", ""),
        ("smollm2-135m", 256, 1024, "{}", "stretched", "refused"),
        ("mistral", 256, 1024, None, "both", "refused"),
        ("mistral", 256, 1024, '{"sliding_window": 256}', "both", "another model"),
        ("smollm2-135m", 256, 1024, '{"sliding_window": 128}', "both", "refused"),
        ("smollm2-135m", 256, 1024, '{"sliding_window": 256}', "both", ""),
        (
            "smollm2-135m",
            700,
            1024,
            '{"sliding_window": 700}',
            "both",
            "700 (not at work in the 512 tokens measured",
        ),
    ],
)
def test_a_curve_of_a_model_without_the_windows_is_refused(name, window, asked, windows, rule, said):
    bundled = posbias.load_measurement(BUNDLED)
    bundled.attrs |= {} if windows is None else {"windows": windows}
    layer = posbias.Layer(heads=9, mask=posbias.SlidingWindow(window))
    architecture = posbias.Architecture(30, (layer,), name=name)
    if said == "refused":
        with pytest.raises(InvalidValueError, match=r"^calibrate: expected "):
            extrapolate(bundled, asked, rule, architecture)
        return
    found = extrapolate(bundled, asked, rule, architecture)
    assert said in "".join(found.left_out)
    assert (found.summary.verdict is None) == bool(said)


def rotary(**keys):
    """A configuration of the bundled model with these keys."""
    shape = {"num_hidden_layers": 30, "num_attention_heads": 9}
    return replace(from_huggingface({"model_type": "llama", **shape, **keys}), name="smollm2-135m")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"rope_theta": 1e5}, ""),
        ({}, "base 10,000"),
        ({"rope_parameters": {"rope_theta": 100000, "rope_type": "default"}}, ""),
        ({"rope_theta": 1e6}, "base 1,000,000"),
        ({"rope_theta": 1e5, "rope_scaling": {"type": "linear", "factor": 2.0}}, "base 100,000, linear × 2"),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e5, "factor": 4}},
            "base 100,000, yarn × 4",
        ),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "base 1,000,000"),
        ({"rope_theta": "far", "rope_scaling": {"factor": None, "type": "su"}}, "base 'far', su"),
    ],
)
def test_other_rotary_positions_than_measured_are_named_and_have_no_verdict(keys, words):
    measured = posbias.load_measurement(BUNDLED)
    measured.attrs["rope"] = '{"rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"}}'
    profile = extrapolate(measured, 1024, architecture=rotary(**keys))
    said = (f"rotary positions of {words} (measured with base 100,000)",) if words else ()
    assert profile.left_out == said
    assert profile.summary.verdict == (None if words else "U")
    del measured.attrs["rope"]
    left_out = extrapolate(measured, 1024, architecture=rotary(**keys)).left_out
    assert [one.endswith("the measurement does not say)") for one in left_out] == [True]


def test_a_model_has_no_positions_beyond_its_table_whatever_it_is_calibrated_by():
    layer = posbias.Layer(heads=9, positional=posbias.NeedsMeasurement("learned", positions=700))
    architecture = posbias.Architecture(30, (layer,), name="smollm2-135m")
    bundled = posbias.load_measurement(BUNDLED)
    assert not extrapolate(bundled, 700, architecture=architecture).left_out
    found = extrapolate(bundled, 701, architecture=architecture)
    assert found.left_out == ("learned positions (the model has 700, 701 asked)",)
    assert verdict_line(found).endswith("no text of this length fits the model")


def test_the_bundled_measurement_says_what_its_rotary_positions_are():
    profile = extrapolate(posbias.load_measurement(BUNDLED), 1024, architecture=rotary(rope_theta=1e6))
    assert profile.left_out == ("rotary positions of base 1,000,000 (measured with base 100,000)",)


def longer(measurement, tokens):
    """A measurement whose influence was stretched to so many tokens."""
    influence = np.stack([stretched(one, tokens) for one in measurement["influence"].values])
    return xr.Dataset({"influence": (("prompt", "position"), influence)}, attrs=measurement.attrs)


def test_what_a_reach_says_is_what_the_trials_say():
    for model, rule in itertools.product({trial.model for trial in trials()}, RULES):
        times, longest = won_up_to(model, rule)
        tried = [trial for trial in trials() if trial.model == model]
        assert all(trial.surely(rule) for trial in tried if trial.factor <= times)
        assert longest == max((trial.tokens for trial in tried if trial.factor <= times), default=0)
    assert won_up_to("smollm2-135m", "stretched") == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((511,), "tokens: expected the 512 of the measurement or more, got 511"),
        ((600, "stretch"), "rule: 'stretch' given"),
        ((600, "energy"), "rule: 'energy' given"),
    ],
)
def test_what_cannot_be_extrapolated_is_refused(arguments, said):
    with pytest.raises(InvalidValueError, match=said):
        extrapolate(posbias.load_measurement(BUNDLED), *arguments)
    with pytest.raises(InvalidValueError, match="expected 32 tokens or more to extrapolate, got 16"):
        extrapolate(measurement(np.ones(16)), 64)


def test_the_page_has_the_trials_on_record():
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    shown = page.split("<!-- trials -->\n\n")[1].split("\n\n<!-- end of trials -->")[0]
    assert shown.splitlines() == calibration._rows(list(trials()))
    row = "512 → 1,024 | +0.03 to +0.10 | +0.0010 to +0.0265 | +0.07 to +0.20 | +0.0486 to +0.1775 |"
    assert f"| smollm2-135m | {row}" in calibration._leads_rows(list(trials()))


@pytest.mark.slow
def test_a_trial_can_be_made_again():
    short, long = (posbias.measure("tiny-rope", tokens=n, seed=seed) for n, seed in ((64, 0), (128, 1)))
    again = calibration.trial(short, long)
    (kept,) = [one for one in trials() if (one.model, one.measured, one.tokens) == ("tiny-rope", 64, 128)]
    for name, scores in kept.scores.items():
        assert again.scores[name] == pytest.approx(scores, abs=2e-3)
