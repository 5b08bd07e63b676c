"""Curves of retrieval from what was asked: a dataset of margins, answers in words, scores made elsewhere."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.arguments import positive
from posbias.core.errors import InvalidValueError
from posbias.profiles.estimate import Estimate
from posbias.retrieval import statistics
from posbias.retrieval.curve import EFFECTS, QUANTITIES, Answers, RetrievalCurve, signed
from posbias.retrieval.resampling import resampled
from posbias.retrieval.statistics import EQUIVALENCE, GAPS, at_ceiling, gap_words, gaps_of
from posbias.retrieval.trials import ABSENT, ALONE, ARMS, SHUFFLED

if TYPE_CHECKING:
    import xarray as xr


def retrieval_curve(retrieval: "xr.Dataset", equivalence: float | None = None) -> RetrievalCurve:
    """The curve of a dataset that `retrieve` made: means over prompts, which are independent.

    `equivalence`: nats up to which a difference of margins counts as none. Raises `InvalidValueError` for a
    dataset that is no retrieval, and for an equivalence that is not above 0.
    """
    if equivalence is not None:
        positive("equivalence", equivalence)
    if retrieval.attrs.get("posbias_kind") != "retrieval":
        raise InvalidValueError(
            f"retrieval: a dataset of kind {retrieval.attrs.get('posbias_kind')!r} given, 'retrieval' needed"
        )
    held = {name: np.asarray(retrieval[name].values) for name in QUANTITIES if name in retrieval}
    held["lift"] = (retrieval["margin_mean"] - retrieval["control_margin_mean"]).values
    curves: dict[str, list[Estimate]] = {
        name: [
            Estimate.of_counts(int(column.sum()), column.size)
            if name in ("accuracy", "choice")
            else Estimate.of_mean(column)
            for column in held[name].T
        ]
        for name in QUANTITIES
    }
    gaps = {
        name: {gap: _difference(column) for gap, column in gaps_of(held[name]).items()} for name in QUANTITIES
    }
    return RetrievalCurve(
        model=str(retrieval.attrs["model"]),
        job=json.loads(retrieval.attrs["job"]),
        prompts=retrieval.sizes["prompt"],
        chance=1.0 / retrieval.sizes["candidate"],
        depth=retrieval["depth"].values.mean(axis=0),
        curves=curves,
        gaps=gaps,
        overall={
            "choice": _share(Estimate.of_mean(held["choice"].mean(axis=1))),
            "lift": Estimate.of_mean(held["lift"].mean(axis=1)),
        },
        equivalence=equivalence,
        token=retrieval["token"].values.mean(axis=0),
        tokens=float(retrieval["tokens"].values.mean()),
        candidates=retrieval.sizes["candidate"],
    )


def answer_curve(
    model: str,
    job: Mapping[str, Any],
    rule: str,
    found: Bool[np.ndarray, "prompt position"],
    every: Bool[np.ndarray, "prompt position"],
    arms: Mapping[str, Bool[np.ndarray, "prompt"]],
    depth: Float[np.ndarray, "position"],
    words: float,
    *,
    chance: float = 0.0,
    equivalence: float = statistics.EQUIVALENCE,
    **more: Any,
) -> RetrievalCurve:
    """The curve of answers in words, every number from one set of resamples of its trials.

    `arms`: whether the fact was in the answer, by control arm and trial. Others as of `Answers` and
    `RetrievalCurve`. Raises `InvalidValueError` for fewer than two trials.
    """
    if len(found) < 2:
        raise InvalidValueError(f"prompts: {len(found)} given, at least 2 trials needed")
    share, places = found.astype(float), range(found.shape[1])
    own = {name: arms[name].astype(float) for name in ARMS}
    mean, middle = share.mean(axis=1), share[:, 1:-1].mean(axis=1)
    shares = {"mean": mean} | {f"at {k}": share[:, k] for k in places}
    shares |= {f"every {k}": every[:, k].astype(float) for k in places} | own
    effects = (mean - own[ABSENT], own[ALONE] - middle, own[SHUFFLED] - mean)
    columns = shares | gaps_of(share) | dict(zip(EFFECTS, effects, strict=True))
    limits = [(0.0, 1.0) if name in shares else (-1.0, 1.0) for name in columns]
    table = resampled(np.stack(list(columns.values()), axis=1), limits, int(job.get("seed", 0)))
    numbers = dict(zip(columns, table, strict=True))
    return RetrievalCurve(
        model=model,
        job=job,
        prompts=len(found),
        chance=chance,
        depth=depth,
        curves={
            "accuracy": [numbers[f"at {k}"] for k in places],
            "all_found": [numbers[f"every {k}"] for k in places],
        },
        gaps={"accuracy": {name: numbers[name] for name in GAPS}},
        overall={name: numbers[name] for name in ("mean", *ARMS, *EFFECTS)},
        equivalence=equivalence,
        answers=Answers(rule, found, every, words, **more),
    )


def verdict_of_trials(found: Float[np.ndarray, "prompt position"], effort: str, measures: str) -> list[str]:
    """Of scores from 0 to 1 by trial and place, whoever made them: the gaps and the verdict."""
    columns = gaps_of(found) | {"mean": found.mean(axis=1)}
    limits = [(float(name == "mean") - 1.0, 1.0) for name in columns]
    gaps = dict(zip(columns, resampled(np.stack(list(columns.values()), axis=1), limits), strict=True))
    ceiling = at_ceiling(found, gaps.pop("mean"))
    verdict = statistics.decide(gaps, EQUIVALENCE, ceiling=ceiling)
    said = [
        f"{name}: {signed(gap, measures)}: {gap_words(name, gap, EQUIVALENCE)}" for name, gap in gaps.items()
    ]
    return [*said, f"verdict: {statistics.in_words(verdict, gaps, EQUIVALENCE, effort, found=found)}"]


def _share(choice: Estimate) -> Estimate:
    """A mean share, its interval within 0 to 1; where all trials are alike, as their number has it."""
    if choice.se == 0:
        return Estimate.alike(choice.value, choice.n or 1)
    low, high = choice.interval
    return replace(choice, ends=(max(0.0, low), min(1.0, high)))


def _difference(within: Float[np.ndarray, "prompt"]) -> Estimate:
    """The mean of paired differences; where all are the same, prompts do not say how sure that is."""
    found = Estimate.of_mean(within)
    return found if found.se else Estimate(found.value, math.nan, found.n)
