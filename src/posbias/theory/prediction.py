"""Predicting the influence of every position: the rollout, with what is known of it and what is not.

Where λ was not given, no single profile is the prediction. Besides the profile under the assumed λ (of trained
models unless another is named) there are those under every known λ: of each pretrained model of the median's
definition, whose least and most at each position are the band, and of those of another definition as a check. A
verdict is given only if it is the same under all of them; of an order it is said under how many it holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from posbias.core.errors import wrong
from posbias.core.progress import OnEvent
from posbias.core.terminal import table
from posbias.profiles.profile import Profile
from posbias.profiles.summary import MixingBand
from posbias.theory.architecture import LAMBDA, Architecture
from posbias.theory.cache import Cache, gigabytes
from posbias.theory.configs import AnyArchitecture, load_architecture
from posbias.theory.mixing import DEFINITION, plausible_mixing
from posbias.theory.rollout.dispatch import influence


def predict(
    architecture: AnyArchitecture,
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
    architecture = load_architecture(architecture)
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
    """'6 of 7 known λ (not under bloom-176b)'; the first, the assumed λ, is named where it fails, not counted."""
    known = [*held.values()][1:]
    fails = [name for name, holds in held.items() if not holds]
    named = f" (not under {', '.join(fails)})" if 0 < len(fails) < len(held) else ""
    return f"{sum(known)} of {len(known)} known λ{named}"


# --- which of several ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Decision:
    """Two or more predictions by name, what each keeps in its cache, and which keeps the middle.

    `shares` are what the first 5 %, the middle half and the last 5 % of the text hold, and flatness, by the model
    whose λ it is; `leads` is by how much the middle of `keeper` is larger than the largest of the others, by λ.
    `keeper` is the one that leads under most λ, and of those the one whose smallest lead is the largest.
    """

    profiles: Mapping[str, Profile]
    caches: Mapping[str, Cache]
    shares: Mapping[str, Float[np.ndarray, "prediction share"]]
    keeper: str
    leads: Mapping[str, float]

    @property
    def said(self) -> str:
        """The decision in a sentence."""
        ends = min(self.leads.values()), max(self.leads.values())
        span = " to ".join(dict.fromkeys(f"{lead:+.2g}" for lead in ends))
        others = " and ".join(name for name in self.profiles if name != self.keeper)
        under = said_under({name: lead > 0 for name, lead in self.leads.items()})
        of = f" under {under}" if len(self.leads) > 1 else ""
        said = f"{self.keeper} keeps more of the middle half than {others}{of}, by a share of {span}"
        if ends[1] <= 0:
            said = f"none of {', '.join(self.profiles)} keeps more of the middle half than the others"
        parts = (part for one in self.profiles.values() for part in one.left_out if part != LAMBDA)
        unsure = " and ".join(dict.fromkeys(parts))
        costs = ", ".join(f"{name} {gigabytes(one.size)}" for name, one in self.caches.items())
        said += f" (as computed: {unsure} not known)" * bool(unsure)
        return said + f"; KV cache: {costs}" * bool(costs)

    def __str__(self) -> str:
        head = ["first 5 %, middle half, last 5 %, flatness with λ of", *self.profiles, "lead in the middle"]
        cells = [
            [name, *(" ".join(f"{share:.1%}" for share in of) for of in shares), f"{self.leads[name]:+.1%}"]
            for name, shares in self.shares.items()
        ]
        return "\n".join([self.said, "", *table(head, cells)])


def decide(profiles: Mapping[str, Profile], caches: Mapping[str, Cache]) -> Decision:
    """Which of these predictions keeps the middle half of the text, under every known λ where λ was not given.

        layouts = {"full": full, "windows": windows}
        profiles = {name: predict(one, 128_000) for name, one in layouts.items()}
        print(decide(profiles, {name: cache_of(one, 128_000) for name, one in layouts.items()}))

    `caches` may be empty. Raises `InvalidValueError` for fewer than two, and for a profile that is no mass.
    """
    if len(profiles) < 2:
        raise wrong("profiles", "two or more", len(profiles))
    for name, one in profiles.items():
        if not isinstance(one, Profile):
            raise wrong(f"profiles: {name}", "a Profile of `posbias.predict`", one)
    known = [(one.band.shapes if one.band else {}, one.summary) for one in profiles.values()]
    names = next((list(under) for under, _ in known if under), ["each as given"])
    shapes = {name: [under.get(name, own) for under, own in known] for name in names}
    shares = {name: np.array([(*s.shares, s.flatness) for s in under]) for name, under in shapes.items()}
    middle = np.array([of[:, 1] for of in shares.values()])
    leads = [column - np.delete(middle, k, axis=1).max(axis=1) for k, column in enumerate(middle.T)]
    first = max(range(len(leads)), key=lambda k: ((leads[k] > 0).sum(), leads[k].min()))
    leads_of = dict(zip(names, leads[first].tolist(), strict=True))
    return Decision(profiles, caches, shares, list(profiles)[first], leads_of)
