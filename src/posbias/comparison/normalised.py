"""Attributions divided by what position alone predicts, so that what content adds can be seen.

    found = posbias.prior_normalised(posbias.read("attributions.json"), posbias.predict(architecture, tokens=64))
    print(found.mass, found.se)      # 1: as much as position predicts, 2: twice as much, −1: as much against it

A method of attribution gives the first and last tokens much whatever they say, if the model does. What remains
after the prior, any profile of mass, predicted or measured, is what content adds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile

MEASURES = "attribution / prior"
LEVEL = 0.05
"""Chance that any position at all is called other than its prior where none is."""


def prior_normalised(attributions: Profile, prior: Profile) -> Profile:
    """Each prompt's attributions as shares of their absolute sum, divided by the prior's mass, mean over prompts.

    r_pj = a_pj / (Σ_k |a_pk| · m_j): 1 where a position gets what the prior predicts. `se` is over prompts and,
    where the prior has an error, √(se² + (r·se_m/m)²) to first order, the two taken as independent. The result is
    signed, its samples are the prompts'. Raises `InvalidValueError` for lengths that differ, a prior that is no
    mass or 0 somewhere, and a prompt whose attributions are all 0.
    """
    if prior.kind != "mass":
        raise InvalidValueError(f"prior: a profile of {prior.kind} given, a mass needed")
    if attributions.tokens != prior.tokens:
        raise InvalidValueError(
            f"prior: {prior.tokens} positions given, {attributions.tokens} needed as in the attributions "
            "(Profile.by_share brings both to one length)"
        )
    if not (prior.mass > 0).all():
        raise InvalidValueError(
            f"prior: 0 at position {int(np.argmin(prior.mass))} given, numbers > 0 needed"
        )
    rows = (
        attributions.mass[None]
        if attributions.samples is None
        else np.asarray(attributions.samples, np.float64)
    )
    whole = np.abs(rows).sum(axis=1, keepdims=True)
    if not (whole > 0).all():
        raise InvalidValueError("attributions: all 0 in a prompt, one other than 0 needed")
    held = prior.mass / prior.mass.sum()
    ratios = rows / whole / held
    mean, count = ratios.mean(axis=0), len(ratios)
    se = None
    if count > 1:
        se = ratios.std(axis=0, ddof=1) / math.sqrt(count)
        if prior.se is not None:
            se = np.hypot(se, mean * np.asarray(prior.se) / prior.mass)
    attrs = {key: attributions.attrs[key] for key in ("model", "read_as") if key in attributions.attrs}
    attrs |= {"prior": prior.name or prior.measures}
    samples = ratios if count > 1 else None
    return Profile(mean, attributions.query, MEASURES, samples, se, attrs, kind="signed")


@dataclass(frozen=True)
class Residual:
    """A position whose attribution is not what the prior predicts, and its `ratio` to that."""

    position: int
    ratio: Estimate


def residuals(normalised: Profile) -> tuple[Residual, ...]:
    """The positions of `prior_normalised` whose interval leaves out 1, the farthest from 1 first.

    Intervals hold together in 95 % (Student's t, Bonferroni over positions). None without prompts: then no
    interval is known.
    """
    if normalised.se is None or normalised.samples is None:
        return ()
    from scipy.special import stdtrit

    reach = stdtrit(len(normalised.samples) - 1, 1 - LEVEL / 2 / normalised.tokens) * np.asarray(
        normalised.se
    )
    low, high = normalised.mass - reach, normalised.mass + reach
    found = [
        Residual(
            place,
            Estimate(
                float(normalised.mass[place]),
                float(normalised.se[place]),
                len(normalised.samples),
                ends=(float(low[place]), float(high[place])),
                together=normalised.tokens,
            ),
        )
        for place in np.flatnonzero((low > 1) | (high < 1)).tolist()
    ]
    return tuple(sorted(found, key=lambda one: -abs(one.ratio.value - 1)))


def sentence(found: Sequence[Residual], normalised: Profile) -> str:
    """What content adds to position, in words."""
    if normalised.samples is None:
        return "beside what position predicts: not told, several prompts needed"
    over = f"{len(normalised.samples)} prompts"
    if not found:
        return f"beside what position predicts: no position told apart by {over}"
    told = ", ".join(f"position {one.position} gets {one.ratio.value:.2g} times as much" for one in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"beside what position predicts: {told}{more} ({over}; intervals leave out 1, together in 95 %)"
