"""Predicting the influence of every position: the rollout, with what is known of it and what is not.

Where λ was not given, no single profile is the prediction. Besides the profile under the assumed λ (of trained
models unless another is named) there are those under every known λ: of each pretrained model of the median's
definition, whose least and most at each position are the band, and of those of another definition as a check. A
verdict is given only if it is the same under all of them; of an order it is said under how many it holds.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from posbias.core.progress import OnEvent
from posbias.profiles.profile import Profile
from posbias.profiles.summary import MixingBand
from posbias.theory.architecture import LAMBDA, Architecture
from posbias.theory.configs import read_architecture
from posbias.theory.mixing import DEFINITION, plausible_mixing
from posbias.theory.rollout.dispatch import influence


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
    `.band` is a `Band`, with the prediction under every known λ; the verdict is what all of it shares,
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
    band = MixingBand(shapes, checks, np.min(masses, axis=0), np.max(masses, axis=0))
    # where the verdict is the same under all, what remains is the length at which they were measured
    left_out = tuple(dict.fromkeys(part for one in every.values() for part in one.left_out if part != LAMBDA))
    most, under = band.verdict
    if (most is None or not all(under.values())) and not any(part[0] == LAMBDA for part in left_out):
        left_out = profile.left_out
    return replace(profile, left_out=left_out, band=band)


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
    known = {} if architecture.mixing_given else plausible_mixing(architecture.depth)
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
    shapes = [(profile.band.shapes if profile.band else {}, profile.summary) for profile in (one, *others)]
    names = next((under for under, _ in shapes if under), {})
    flatness = {name: [under.get(name, own).flatness for under, own in shapes] for name in names}
    return {name: own > max(rest) for name, (own, *rest) in flatness.items()}


def said_under(held: Mapping[str, bool]) -> str:
    """'6 of 7 known λ (not under bloom-176b)'."""
    fails = [name for name, holds in held.items() if not holds]
    named = f" (not under {', '.join(fails)})" if 0 < len(fails) < len(held) else ""
    return f"{len(held) - len(fails)} of {len(held)} known λ{named}"
