"""Mixing coefficients that were published or measured, by the model's name, and what they say of other models.

    known_mixing()["bloom-176b"].coefficients     # λ of its 70 layers, at 256 tokens
    trained_median(24)                            # λ of a model of 24 layers of which nothing else is known

Facts with their source, in `known_mixing.toml`. Two definitions of λ stand there, which differ several times on
one model: the median is over models of one of them, and those of the other are a check.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from posbias.theory.mixing import MeasuredMixing

DEFINITION = "per_token_ratio"
"""The definition of λ whose median is the default: that of most pretrained models whose λ is known."""


class _Known(NamedTuple):
    mixing: MeasuredMixing
    pretrained: bool
    definition: str


def known_mixing() -> Mapping[str, MeasuredMixing]:
    """λ by model, with the length and text at which it was measured."""
    return MappingProxyType({name: known.mixing for name, known in _read().items()})


def plausible_mixing(depth: int, definition: str | None = None) -> Mapping[str, MeasuredMixing]:
    """λ of a model of `depth` layers, were it that of each pretrained model that was measured (by `definition`).

    λ is taken at the same relative depth (`at_depth`).
    """
    known = {
        name: one.mixing
        for name, one in _read().items()
        if one.pretrained and definition in (None, one.definition)
    }
    return {name: replace(at_depth(mixing, depth), text="", source=name) for name, mixing in known.items()}


@functools.cache
def trained_median(depth: int) -> Float[np.ndarray, "layer"]:
    """λ by layer: the median over models of `DEFINITION`, each at the same relative depth; read-only."""
    models = plausible_mixing(depth, DEFINITION).values()
    median = np.median([mixing.coefficients for mixing in models], axis=0)
    median.flags.writeable = False
    return median


def at_depth(mixing: MeasuredMixing, depth: int) -> MeasuredMixing:
    """λ of a model of another depth: layer t of T lies at (t + ½)/T, and between two layers λ is linear."""
    layers = len(mixing.coefficients)
    place, places = ((np.arange(count) + 0.5) / count for count in (depth, layers))
    values = np.interp(place, places, mixing.coefficients)
    return replace(mixing, coefficients=tuple(values.tolist()))


@functools.cache
def _read() -> dict[str, _Known]:
    text = files("posbias.theory").joinpath("known_mixing.toml").read_text(encoding="utf-8")
    return {
        name: _Known(
            pretrained=one.pop("pretrained"), definition=one.pop("definition"), mixing=MeasuredMixing(**one)
        )
        for name, one in tomllib.loads(text).items()
    }
