"""Mixing coefficients that were published or measured, by the model's name, and what they say of other models.

    known_mixing()["bloom-176b"].coefficients     # λ of its 70 layers, at 256 tokens

Facts with their source, in `known_mixing.toml`.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from types import MappingProxyType

import numpy as np

from posbias.theory.mixing import MeasuredMixing


def known_mixing() -> Mapping[str, MeasuredMixing]:
    """λ by model, with the length and text at which it was measured."""
    return MappingProxyType({name: mixing for name, (mixing, _) in _read().items()})


def plausible_mixing(depth: int) -> Mapping[str, MeasuredMixing]:
    """λ of a model of `depth` layers, were it that of each pretrained model that was measured.

    λ is taken at the same relative depth (`at_depth`).
    """
    known = {name: mixing for name, (mixing, pretrained) in _read().items() if pretrained}
    return {name: replace(at_depth(mixing, depth), text="", source=name) for name, mixing in known.items()}


def at_depth(mixing: MeasuredMixing, depth: int) -> MeasuredMixing:
    """λ of a model of another depth: layer t of T lies at (t + ½)/T, and between two layers λ is linear."""
    layers = len(mixing.coefficients)
    place, places = ((np.arange(count) + 0.5) / count for count in (depth, layers))
    values = np.interp(place, places, mixing.coefficients)
    return replace(mixing, coefficients=tuple(values.tolist()))


@functools.cache
def _read() -> dict[str, tuple[MeasuredMixing, bool]]:
    text = files("posbias.theory").joinpath("known_mixing.toml").read_text(encoding="utf-8")
    read = tomllib.loads(text)
    return {
        name: (MeasuredMixing(**one), pretrained)
        for name, one in read.items()
        for pretrained in [one.pop("pretrained")]
    }
