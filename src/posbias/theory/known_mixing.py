"""Mixing coefficients that were published or measured, by the model's name, and what they say of other models.

    known_mixing()["bloom-176b"].coefficients     # λ of its 70 layers, at 256 tokens

Facts with their source, in `known_mixing.toml`.
"""

import functools
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

import numpy as np

from posbias.theory.mixing import MeasuredMixing


def known_mixing() -> Mapping[str, MeasuredMixing]:
    """λ by model, with the length and text at which it was measured."""
    return MappingProxyType({name: mixing for name, (mixing, _) in _read().items()})


def plausible_mixing(depth: int) -> Mapping[str, MeasuredMixing]:
    """λ of a model of `depth` layers, were it that of each pretrained model that was measured.

    λ is taken at the same relative depth: layer t of T lies at (t + ½)/T, and between two layers λ is linear.
    """
    place = (np.arange(depth) + 0.5) / depth
    found = {}
    for name, (mixing, pretrained) in _read().items():
        if pretrained:
            layers = len(mixing.coefficients)
            values = np.interp(place, (np.arange(layers) + 0.5) / layers, mixing.coefficients)
            found[name] = MeasuredMixing(tuple(values.tolist()), tokens=mixing.tokens, source=name)
    return found


@functools.cache
def _read() -> dict[str, tuple[MeasuredMixing, bool]]:
    text = files("posbias.theory").joinpath("known_mixing.toml").read_text(encoding="utf-8")
    read = tomllib.loads(text)
    return {
        name: (MeasuredMixing(**one), pretrained)
        for name, one in read.items()
        for pretrained in [one.pop("pretrained")]
    }
