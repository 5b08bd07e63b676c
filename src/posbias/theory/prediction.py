"""Predicting the influence of every position: the rollout, with what is known of it and what is not.

Where λ was not given, no single profile is the prediction. Besides the profile under the assumed λ (of trained
models unless another is named) there are those under every known λ: of each pretrained model of the median's
definition, whose least and most at each position are the band, and of those of another definition as a check. A
verdict is given only if it is the same under all of them; of an order it is said under how many it holds.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from posbias.core.progress import OnEvent
from posbias.profiles.profile import Profile
from posbias.profiles.summary import Summary
from posbias.theory.architecture import LAMBDA, Architecture
from posbias.theory.configs import read_architecture
from posbias.theory.mixing import DEFINITION, plausible_mixing
from posbias.theory.rollout.dispatch import influence


@dataclass(frozen=True, eq=False)
class Band:
    """A prediction under every known λ: `shapes` by the model whose λ it has, that of the assumed λ first.

    `low` and `high` are the least and the most of each position over the pretrained models of one definition of λ.
    The others, `checks`, count for verdicts, which are of the curves as computed, at any length.
    """

    shapes: dict[str, Summary]
    checks: tuple[str, ...]
    low: Float[np.ndarray, "position"]
    high: Float[np.ndarray, "position"]

    @property
    def models(self) -> tuple[str, ...]:
        """The pretrained models of `low` and `high`."""
        return tuple(name for name in list(self.shapes)[1:] if name not in self.checks)

    @property
    def verdicts(self) -> dict[str, str | None]:
        """The verdict under each λ."""
        return {name: shape.verdict for name, shape in self.shapes.items()}

    @property
    def verdict(self) -> tuple[str | None, dict[str, bool]]:
        """The verdict under most λ, and whether it is that under each; None where something else decides it."""
        (most, _), *_ = Counter(self.verdicts.values()).most_common()
        return most, {name: one == most for name, one in self.verdicts.items()}


def predict(
    architecture: Architecture | str | os.PathLike[str],
    tokens: int,
    query: int = -1,
    *,
    method: str = "auto",
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> Profile:
    """The influence of every position on the state of `query`, in a text of `tokens` tokens.

        predict("bloom-176b", 256).summary.verdict    # 'U'

    - `architecture`: a value, or as in the shell the name of a model (`posbias presets` lists them) or a path: a
      `config.json` or its folder, a file of ours.
    - `tokens`: the length of the text, ≥ 1.
    - `query`: the position that is influenced, counted from 0; negative counts from the end (−1, the last).
    - `method`: how layers are computed: "auto", "sweep", "fft" or "stream".
    - `threads`: of the processor; None: all. They change no bit.
    - `on_event`: called with how far long work is (`posbias.core.progress.Event`).

    Returns a `Profile`: `mass[position]` is a share ≥ 0, in all 1 − `missing_mass`. Where λ was not given,
    `.attrs["band"]` is a `Band`, with the prediction under every known λ; the verdict is what all of it shares,
    and this takes as many times longer as models were measured.

    Raises `InvalidValueError` naming a wrong argument, `InputFileError` for a name that is not known, with the
    nearest, and what `influence` raises.
    """
    if not isinstance(architecture, Architecture):
        architecture = read_architecture(architecture).architecture
    every = under_each(architecture, tokens, query, method=method, threads=threads, on_event=on_event)
    assumed, profile = next(iter(every.items()))
    if len(every) == 1:
        return profile
    shapes = {
        name: replace(one, left_out=tuple(part for part in one.left_out if part[0] != LAMBDA)).summary
        for name, one in every.items()
    }
    same = plausible_mixing(architecture.depth, DEFINITION)
    masses = [every[name].mass for name in same]
    checks = tuple(name for name in every if name not in {assumed, *same})
    band = Band(shapes, checks, np.min(masses, axis=0), np.max(masses, axis=0))
    # where the verdict is the same under all, what remains is the length at which they were measured
    left_out = tuple(dict.fromkeys(part for one in every.values() for part in one.left_out if part != LAMBDA))
    most, under = band.verdict
    if (most is None or not all(under.values())) and not any(part[0] == LAMBDA for part in left_out):
        left_out = profile.left_out
    return replace(profile, left_out=left_out, attrs=dict(profile.attrs) | {"band": band})


def under_each(
    architecture: Architecture,
    tokens: int,
    query: int = -1,
    *,
    method: str = "auto",
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> dict[str, Profile]:
    """`influence` by the schedule of λ, and where λ was not given under every known one, by the model's name."""
    mixing = architecture.mixing
    known = plausible_mixing(architecture.depth) if mixing.assumed else {}
    variants = {
        name: replace(architecture, mixing=schedule)
        for name, schedule in {getattr(mixing, "kind", "own"): mixing, **known}.items()
    }
    return {
        name: influence(variant, tokens, query, method=method, threads=threads, on_event=on_event)
        for name, variant in variants.items()
    }


def flattest_under(one: Profile, others: Sequence[Profile]) -> dict[str, bool]:
    """Whether a prediction is flatter than all others under each known λ; empty where λ was given for every one.

    A prediction whose λ was given is the same under all.
    """
    bands = [profile.attrs["band"].shapes if "band" in profile.attrs else {} for profile in (one, *others)]
    shapes = [(band, profile.summary) for band, profile in zip(bands, (one, *others), strict=True)]
    names = next(filter(None, bands), {})
    flatness = {name: [band.get(name, own).flatness for band, own in shapes] for name in names}
    return {name: own > max(rest) for name, (own, *rest) in flatness.items()}


def said_under(held: Mapping[str, bool]) -> str:
    """'6 of 7 known λ (not under bloom-176b)'."""
    fails = [name for name, holds in held.items() if not holds]
    named = f" (not under {', '.join(fails)})" if 0 < len(fails) < len(held) else ""
    return f"{len(held) - len(fails)} of {len(held)} known λ{named}"
