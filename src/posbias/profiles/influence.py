"""The influence that a measurement holds, as a profile."""

import hashlib
import json
from typing import TYPE_CHECKING

from posbias.profiles.profile import Profile

if TYPE_CHECKING:
    import xarray as xr


def measured_influence(measurement: "xr.Dataset") -> Profile:
    """The gradient influence of the last token, averaged over prompts (its samples) and normalised.

    `attrs` have the names of model and text and, as "prompts", what is equal for measurements of the same prompts.
    Source: Herasimchyk et al. 2026, Eq. (6).
    """
    attrs = {"model": measurement.attrs.get("model", ""), "text": measurement.attrs.get("text", "")}
    if (of := _prompts(measurement)) is not None:
        attrs["prompts"] = of
    return Profile.from_samples(measurement["influence"].values, measures="gradient", attrs=attrs)


def _prompts(measurement: "xr.Dataset") -> str | None:
    """What names the prompts: their text, length and places in it; None where a file does not say."""
    held = measurement.attrs
    if not all(str(held.get(name, "")) for name in ("text_sha256", "starts", "tokens")):
        return None
    asked = json.loads(held.get("asked", "{}"))
    told = [str(held.get(name, "")) for name in ("text_sha256", "starts", "tokens", "documents", "skipped")]
    return hashlib.sha256("|".join([*told, str(asked.get("scramble", False))]).encode()).hexdigest()[:16]
