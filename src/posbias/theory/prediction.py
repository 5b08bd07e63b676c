"""Predicting the influence of every position: the rollout, with what is known of it and what is not.

Where λ was not given, no single profile is the prediction. Besides the profile under the assumed λ (of trained
models unless another is named) there are those under every known λ: of each pretrained model of the median's
definition, whose least and most at each position are the band, and of those of another definition as a check. A
verdict is given only if it is the same under all of them; of an order it is said under how many it holds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.events import OnEvent
from posbias.profile import Profile
from posbias.signatures import typed
from posbias.summary import Summary
from posbias.theory.architecture import LAMBDA, Architecture
from posbias.theory.known_mixing import DEFINITION, plausible_mixing
from posbias.theory.rollout.dispatch import influence


@dataclass(frozen=True)
class Under:
    """Under which λ something holds and under which it does not, by the models' names."""

    holds: tuple[str, ...]
    fails: tuple[str, ...]

    @classmethod
    def of(cls, held: Mapping[str, bool]) -> "Under":
        """From whether it holds under each λ."""
        return cls(
            tuple(name for name, holds in held.items() if holds),
            tuple(name for name, holds in held.items() if not holds),
        )

    @property
    def unanimous(self) -> bool:
        """Whether it holds under every λ, or under none."""
        return not (self.holds and self.fails)

    def __str__(self) -> str:
        count = f"{len(self.holds)} of {len(self.holds) + len(self.fails)} known λ"
        if self.unanimous:
            return count
        return f"{count} (not under {', '.join(self.fails)})"

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"holds": list(self.holds), "fails": list(self.fails)}


@dataclass(frozen=True, eq=False)
class Band:
    """A prediction under every known λ: `shapes` by the model whose λ it has, that of the `assumed` one first.

    `low` and `high` are the least and the most of each position over the pretrained models of one definition of
    λ; `checks` are the models of another, whose shapes count as well. Verdicts are of the
    curves as computed, at any length.
    """

    assumed: str
    shapes: dict[str, Summary]
    checks: tuple[str, ...]
    low: Float[np.ndarray, "position"]
    high: Float[np.ndarray, "position"]

    @property
    def models(self) -> tuple[str, ...]:
        """The pretrained models of the band."""
        return tuple(name for name in self.shapes if name != self.assumed and name not in self.checks)

    @property
    def verdicts(self) -> dict[str, str | None]:
        """The verdict under each λ."""
        return {name: shape.verdict for name, shape in self.shapes.items()}

    @property
    def verdict(self) -> tuple[str, Under] | None:
        """The verdict under most λ, and under which; None where something else decides it."""
        (most, _), *_ = Counter(self.verdicts.values()).most_common()
        if most is None:
            return None
        return most, Under.of({name: one == most for name, one in self.verdicts.items()})

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        edges = {"low": self.low.tolist(), "high": self.high.tolist()}
        names = {"assumed": self.assumed, "models": list(self.models), "checks": list(self.checks)}
        return edges | names | {"verdicts": self.verdicts}


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
    how: dict[str, Any] = {"method": method, "threads": threads, "on_event": on_event}
    profile = influence(architecture, tokens, query, **how)
    others = under_each(architecture, tokens, query, **how)
    if not others:
        return profile
    kind, same = kind_of(architecture), plausible_mixing(architecture.depth, DEFINITION)
    shapes = {
        name: replace(
            one, left_out=tuple(part for part in one.left_out if not part.startswith(LAMBDA))
        ).summary
        for name, one in {kind: profile, **others}.items()
    }
    masses = [one.mass for name, one in others.items() if name in same]
    checks = tuple(name for name in others if name not in same)
    band = Band(kind, shapes, checks, np.min(masses, axis=0), np.max(masses, axis=0))
    # where the verdict is the same under all, what remains is the length at which they were measured
    settled = band.verdict is not None and not band.verdict[1].fails
    left_out = tuple(dict.fromkeys(part for one in others.values() for part in one.left_out))
    if not settled and left_out == tuple(part for part in profile.left_out if part != LAMBDA):
        left_out = profile.left_out
    return replace(profile, left_out=left_out, attrs=dict(profile.attrs) | {"band": band})


def under_each(architecture: Architecture, tokens: int, query: int = -1, **how: Any) -> dict[str, Profile]:
    """`influence` under every known λ, by the pretrained model's name; empty where λ was given."""
    known = plausible_mixing(architecture.depth) if architecture.mixing.assumed else {}
    return {
        name: influence(replace(architecture, mixing=mixing), tokens, query, **how)
        for name, mixing in known.items()
    }


def kind_of(architecture: Architecture) -> str:
    """What the schedule of an architecture is called."""
    return getattr(architecture.mixing, "kind", type(architecture.mixing).__name__)


@typed
def flattest_under(one: Profile, others: Sequence[Profile]) -> Under | None:
    """Under which of the known λ a prediction is flatter than all others; None where λ was given for every one.

    A prediction whose λ was given is the same under all.
    """
    shapes = [profile.attrs["band"].shapes if "band" in profile.attrs else {} for profile in (one, *others)]
    names = next(filter(None, shapes), {})
    flatness = {
        name: [
            found.get(name, profile.summary).flatness
            for found, profile in zip(shapes, (one, *others), strict=True)
        ]
        for name in names
    }
    return Under.of({name: own > max(rest) for name, (own, *rest) in flatness.items()}) if names else None
