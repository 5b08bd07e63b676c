"""Predicting the influence of every position: the rollout, with what is known of it and what is not.

Where λ was not given, no single profile is the prediction. Beside the profile of a network at initialisation there
is a band: the least and the most that each position has with the λ of every pretrained model that was measured. A
verdict is given only if it is that of them all.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.events import OnEvent
from posbias.profile import Profile
from posbias.signatures import typed
from posbias.theory.architecture import LAMBDA, Architecture
from posbias.theory.known_mixing import plausible_mixing
from posbias.theory.rollout.dispatch import influence


@dataclass(frozen=True, eq=False)
class Band:
    """Profiles by the model whose λ they have; `low` and `high` are the least and the most at each position."""

    profiles: dict[str, Profile]

    @property
    def low(self) -> Float[np.ndarray, "position"]:
        """The least mass of each position."""
        return np.min([one.mass for one in self.profiles.values()], axis=0)

    @property
    def high(self) -> Float[np.ndarray, "position"]:
        """The most mass of each position."""
        return np.max([one.mass for one in self.profiles.values()], axis=0)

    @property
    def verdicts(self) -> dict[str, str | None]:
        """The verdict on each profile, by the same name."""
        return {name: one.summary.verdict for name, one in self.profiles.items()}

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"low": self.low.tolist(), "high": self.high.tolist(), "verdicts": self.verdicts}


@typed
def predict(
    architecture: Architecture,
    tokens: int,
    query: int = -1,
    *,
    method: str = "auto",
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> Profile:
    """`influence`, and where λ was not given a `Band` in `.attrs["band"]` and the verdict that all of it shares.

    Arguments and errors as in `influence`. Without λ this takes as many times longer as models were measured.
    """
    profile = influence(architecture, tokens, query, method=method, threads=threads, on_event=on_event)
    if not architecture.mixing.assumed:
        return profile
    others = {
        name: influence(
            replace(architecture, mixing=mixing),
            tokens,
            query,
            method=method,
            threads=threads,
            on_event=on_event,
        )
        for name, mixing in plausible_mixing(architecture.depth).items()
    }
    band = Band(others)
    left_out = tuple(part for part in profile.left_out if part != LAMBDA)
    known = replace(profile, left_out=left_out, attrs=dict(profile.attrs) | {"band": band})
    shared = {known.summary.verdict, *band.verdicts.values()}
    return known if len(shared) == 1 and None not in shared else replace(known, left_out=profile.left_out)
