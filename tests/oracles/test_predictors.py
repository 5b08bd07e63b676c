"""The five predictors against loops written from their definitions, and measurements through a file."""

import math

import numpy as np
import pytest
import xarray as xr

from posbias.comparison.predictors import PREDICTORS, predictions
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.measurement import measure
from posbias.profiles.measurements import load_measurement, load_profile, save_measurement
from posbias.profiles.profile import measured_influence

TOKENS, LAYERS, HEADS, PROMPTS = 9, 3, 2, 5


@pytest.fixture
def measurement() -> xr.Dataset:
    """Random numbers in the shapes of docs/measure.md; every layer and head differs."""
    rng = np.random.default_rng(11)
    lower = np.tril(np.ones((TOKENS, TOKENS)))
    kernel = rng.gamma(1.0, size=(LAYERS, TOKENS, TOKENS)) * lower
    by_head = (LAYERS, HEADS, TOKENS)
    distance = rng.normal(size=by_head)
    distance[..., -1] = np.nan
    positional = rng.normal(size=by_head)
    positional[..., -1] = np.nan
    return xr.Dataset(
        {
            "influence": (("prompt", "position"), rng.gamma(1.0, size=(PROMPTS, TOKENS))),
            "mixing": (("prompt", "layer"), rng.uniform(size=(PROMPTS, LAYERS))),
            "logits_distance": (("layer", "head", "distance"), distance),
            "positional_distance": (("layer", "head", "distance"), positional),
            "logits_first_column": (("layer", "head", "position"), rng.normal(size=by_head)),
            "kernel": (("layer", "query", "key"), kernel / kernel.sum(axis=-1, keepdims=True)),
            "energy_kernel": (("layer", "query", "key"), rng.gamma(0.1, size=kernel.shape) * lower),
        },
        attrs={"posbias_kind": "measurement", "model": "random", "text": "none"},
    )


def softmax_rows(logit) -> np.ndarray:
    kernel = np.zeros((TOKENS, TOKENS))
    for i in range(TOKENS):
        weights = [math.exp(logit(i, j)) for j in range(i + 1)]
        for j in range(i + 1):
            kernel[i, j] = weights[j] / sum(weights)
    return kernel


def expected(measurement: xr.Dataset, key: str) -> np.ndarray:
    """The last row of the product of all transitions, with every matrix written out."""
    product = np.eye(TOKENS)
    for t in range(LAYERS):
        lam = 1.0 if key == "attention_only" else float(measurement["mixing"][:, t].mean())
        if key == "energy":
            product = (np.eye(TOKENS) + measurement["energy_kernel"].values[t]) @ product
            continue
        if key == "measured_kernels":
            kernel = measurement["kernel"].values[t]
        else:
            kernel = np.zeros((TOKENS, TOKENS))
            name = "logits_distance" if key == "fitted" else "positional_distance"
            for h in range(HEADS):
                by_distance = measurement[name].values[t, h]
                column = measurement["logits_first_column"].values[t, h]

                def logit(i, j, by_distance=by_distance, column=column):
                    if key == "fitted" and j == 0:
                        return column[i]
                    return by_distance[min(i - j, TOKENS - 2)]

                kernel += softmax_rows(logit) / HEADS
        product = ((1 - lam) * np.eye(TOKENS) + lam * kernel) @ product
    row = np.sqrt(product[-1]) if key == "energy" else product[-1]
    return row / row.sum()


@pytest.mark.parametrize("key", [predictor.key for predictor in PREDICTORS])
def test_predictor_equals_its_definition(measurement, key):
    np.testing.assert_allclose(predictions(measurement)[key].mass, expected(measurement, key), rtol=1e-12)


def test_measured_influence_is_the_normalised_mean(measurement):
    mean = measurement["influence"].values.mean(axis=0)
    np.testing.assert_allclose(measured_influence(measurement).mass, mean / mean.sum(), rtol=1e-14)


def test_keys_and_labels_are_unique():
    for name in ("key", "label"):
        assert len({getattr(predictor, name) for predictor in PREDICTORS}) == len(PREDICTORS)


def test_a_missing_variable_is_named(measurement):
    with pytest.raises(InvalidValueError, match="expected the variable 'kernel' for the predictor"):
        predictions(measurement.drop_vars("kernel"))


def test_a_measurement_survives_its_file(measurement, tmp_path):
    path = save_measurement(measurement, tmp_path / "deep" / "m.nc")
    again = load_measurement(path)
    assert again.attrs["model"] == "random"
    for name in measurement:
        rtol = 1e-6 if name in ("kernel", "energy_kernel") else 0
        np.testing.assert_allclose(again[name], measurement[name], rtol=rtol)
    np.testing.assert_array_equal(load_profile(path).mass, measured_influence(measurement).mass)
    assert [one.name for one in path.parent.iterdir()] == ["m.nc"]
    assert path.read_bytes() == save_measurement(measurement, tmp_path / "other.nc").read_bytes()


def test_another_netcdf_file_is_refused(tmp_path):
    xr.Dataset({"a": 1}).to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    with pytest.raises(InputFileError, match="not a posbias measurement"):
        load_measurement(tmp_path / "a.nc")


def test_every_predictor_knows_a_sliding_window():
    """Keys beyond the window have no logit: they get no weight, and the report of a windowed model is written."""
    measurement = measure("tiny-window", tokens=96, prompts=2)
    found = predictions(measurement)
    assert len(found) == 5
    for key, profile in found.items():
        assert profile.mass.sum() == pytest.approx(1, abs=1e-9), key
    # one layer's reach is 63 tokens back: without the residual stream, too, six layers reach everything
    assert (found["attention_only"].mass > 0).all()
    single = measurement.isel(layer=[0])
    for key in ("attention_only", "positional", "fitted"):
        mass = predictions(single)[key].mass
        assert (mass[: 96 - 64] == 0).all(), key
        assert (mass[96 - 64 :] > 0).all(), key
