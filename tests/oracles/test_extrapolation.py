"""Extrapolated profiles against plain loops, exact cases and the trials on record."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

import posbias
from posbias.comparison.extrapolation import continued, extrapolate, stretched, won_up_to
from posbias.core.errors import InputFileError
from posbias.core.formats import dump_json
from posbias.profiles.curves import at_shares
from posbias.reports.answers.predictions import Profile
from posbias.theory.huggingface import from_huggingface

CURVES = st.lists(st.floats(0.01, 10.0), min_size=32, max_size=48).map(np.array)


def measurement(influence, model="", **more):
    """A measurement of one prompt with this influence."""
    about = {"influence": (("prompt", "position"), np.asarray(influence)[None])}
    return xr.Dataset(about | more, attrs={"model": model})


@given(CURVES, st.integers(0, 200))
def test_a_stretched_share_keeps_its_mass(curve, more):
    """Each stretch of the text holds what it has in common with the positions measured."""
    tokens = curve.size + more
    mass = stretched(curve, tokens)
    np.testing.assert_allclose(mass, at_shares(curve, tokens, total=True) / curve.sum(), rtol=1e-9)
    assert mass.min() > 0


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


def test_a_saved_prediction_says_what_it_was_calibrated_by(tmp_path):
    predicted = extrapolate(posbias.load_measurement("smollm2-135m"), 1024)
    path = tmp_path / "predicted.json"
    path.write_text(dump_json(Profile.of(predicted).model_dump(mode="json")))
    assert posbias.load_profile(path).calibration == predicted.calibration
    path.write_text(
        path.read_text().replace('"rule":"both"', '"rule":3').replace('"rule": "both"', '"rule": 3')
    )
    refused("calibration.rule", lambda: posbias.load_profile(path), error=InputFileError)


def test_a_verdict_needs_trials_that_were_won():
    bundled = posbias.load_measurement("smollm2-135m")
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


def rotary(**keys):
    """A configuration of the bundled model with these keys."""
    shape = {"num_hidden_layers": 30, "num_attention_heads": 9}
    return replace(from_huggingface({"model_type": "llama", **shape, **keys}), name="smollm2-135m")


def longer(measurement, tokens):
    """A measurement whose influence was stretched to so many tokens."""
    influence = np.stack([stretched(one, tokens) for one in measurement["influence"].values])
    return xr.Dataset({"influence": (("prompt", "position"), influence)}, attrs=measurement.attrs)


@pytest.mark.parametrize(
    ("name", "window", "windows", "found"),
    [
        ("smollm2-135m", 256, None, "refused"),
        ("smollm2-135m", 2048, None, "verdict"),
        ("mistral", 256, None, "refused"),
        ("mistral", 256, '{"sliding_window": 256}', "no verdict"),
        ("smollm2-135m", 256, '{"sliding_window": 128}', "refused"),
        ("smollm2-135m", 256, '{"sliding_window": 256}', "verdict"),
        # not at work in the 512 tokens measured
        ("smollm2-135m", 700, '{"sliding_window": 700}', "no verdict"),
    ],
)
def test_a_curve_of_a_model_without_the_windows_is_refused(name, window, windows, found):
    bundled = posbias.load_measurement("smollm2-135m")
    bundled.attrs |= {} if windows is None else {"windows": windows}
    layer = posbias.Layer(heads=9, mask=posbias.SlidingWindow(window))
    architecture = posbias.Architecture(30, (layer,), name=name)
    if found == "refused":
        refused("calibrate", lambda: extrapolate(bundled, 1024, architecture=architecture))
        return
    profile = extrapolate(bundled, 1024, architecture=architecture)
    assert bool(profile.left_out) == (profile.summary.verdict is None) == (found == "no verdict")


@pytest.mark.parametrize(
    ("keys", "same"),
    [
        ({"rope_theta": 1e5}, True),
        ({"rope_parameters": {"rope_theta": 100000, "rope_type": "default"}}, True),
        ({}, False),
        ({"rope_theta": 1e5, "rope_scaling": {"type": "linear", "factor": 2.0}}, False),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, False),
        ({"rope_theta": "far", "rope_scaling": {"factor": None, "type": "su"}}, False),
    ],
)
def test_other_rotary_positions_than_measured_have_no_verdict(keys, same):
    measured = posbias.load_measurement("smollm2-135m")
    profile = extrapolate(measured, 1024, architecture=rotary(**keys))
    assert (len(profile.left_out), profile.summary.verdict) == ((0, "U") if same else (1, None))
    del measured.attrs["rope"]
    assert len(extrapolate(measured, 1024, architecture=rotary(**keys)).left_out) == 1


def test_lengths_beyond_a_table_of_positions_and_what_cannot_be_extrapolated():
    learned = posbias.Layer(heads=9, positional=posbias.NeedsMeasurement("learned", positions=700))
    architecture = posbias.Architecture(30, (learned,), name="smollm2-135m")
    bundled = posbias.load_measurement("smollm2-135m")
    assert [len(extrapolate(bundled, n, architecture=architecture).left_out) for n in (700, 701)] == [0, 1]
    refused("tokens", lambda: extrapolate(bundled, 511))
    refused("rule", lambda: extrapolate(bundled, 600, "stretch"))
    refused("measurement", lambda: extrapolate(measurement(np.ones(16)), 64))
