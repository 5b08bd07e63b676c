"""One cell of the sink taken out: loss, influence and rollouts of a model whose sink gives nothing.

The protocol is `docs/predictors.md`; `extensions/run_sink_removal.py` goes through its cells,
`posbias_papers.extensions.sink_removal` tells what they found. Altered and unaltered read the same prompts, so all
differences are paired.
"""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from posbias.comparison.held_out import half
from posbias.comparison.paired_scores import Judge, Scored, differences_of, mean_agreement
from posbias.comparison.predictors import last_row, measured_mixing
from posbias.profiles.agreement import SCORES, Agreement, means, scores
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.theory.rollout.kernel import push
from posbias_papers.extensions.cells import rounded
from posbias_papers.extensions.predictor_trials import COLUMN, DIGITS

if TYPE_CHECKING:
    import xarray as xr

    from posbias.measurement.capture.forward import SeenLayer
    from posbias.measurement.models.loading import LoadedModel

PLAIN, KEPT_OUT, MASKED, EARLY, STRONGEST = "plain", "kept out", "masked", "early", "strongest"
WAYS = (PLAIN, KEPT_OUT, MASKED, EARLY, STRONGEST)
EARLY_KEY = 8
ROLLED = (PLAIN, KEPT_OUT)
"""The ways whose rollouts are judged."""
Readings = Mapping[str, np.ndarray]
"""Of one way: `loss` [prompt], `influence` [prompt, position], `share` [layer] that is kept out (mean over heads,
queries i ≥ 1 and prompts)."""


def alteration(way: str) -> Any:
    """What a way does to attention; None for the plain one."""
    from posbias.measurement.capture.removal import column, kept_out, masked, strongest

    sink = column(0)
    return {
        PLAIN: None,
        KEPT_OUT: kept_out(sink),
        MASKED: masked(sink),
        EARLY: kept_out(column(EARLY_KEY)),
        STRONGEST: kept_out(strongest),
    }[way]


def readings(loaded: "LoadedModel", ids: Int[np.ndarray, "prompt position"], way: str) -> Readings:
    """Read prompts in a way that keeps a key from giving, or from being seen."""
    import torch

    from posbias.measurement.capture.forward import Capture
    from posbias.measurement.capture.removal import altered
    from posbias.measurement.quantities.influence import gradients, predict

    rows: list[dict[str, Any]] = []
    shares: list[float] = []

    def see(seen: "SeenLayer") -> None:
        shares.append(float(1 - seen.attention[:, 1:].double().sum(dim=2).mean()))

    for one in torch.from_numpy(ids):
        with altered(loaded.model, alteration(way)), Capture(loaded.model, loaded.family, see):
            prediction = predict(loaded.model, one)
        rows.append(gradients(prediction, one))
    found = {name: np.array([row[name] for row in rows]) for name in ("loss", "influence")}
    return found | {"share": np.reshape(shares, (len(ids), -1)).mean(axis=0)}


def readings_in(measurement: "xr.Dataset", way: str) -> Readings:
    """The same of a measurement in one of `ROLLED`; of the plain one the share is what the sink draws."""
    kernel = measurement["kernel"].values[:, 1:]
    share = kernel[..., 0] if way == PLAIN else 1 - kernel.sum(axis=2)
    found = {name: measurement[name].values for name in ("loss", "influence")}
    return found | {"share": share.mean(axis=1)}


def given_by_layer(
    loaded: "LoadedModel", ids: Int[np.ndarray, "prompt position"]
) -> Float[np.ndarray, "layer"]:
    """Σ_i ‖c_i‖/Σ_i ‖a_i‖ over i ≥ 1, mean over prompts: what attention adds from token 0, beside all it adds."""
    import torch

    from posbias.measurement.capture.forward import Capture

    found: list[float] = []
    with torch.no_grad():
        for one in torch.from_numpy(ids):
            with Capture(loaded.model, loaded.family, lambda seen: found.append(given(seen))):
                loaded.model(input_ids=one[None], use_cache=False)
    return np.reshape(found, (len(ids), -1)).mean(axis=0)


def given(seen: "SeenLayer") -> float:
    """Σ_i ‖c_i‖/Σ_i ‖a_i‖ over i ≥ 1 of one layer and prompt."""
    assert seen.values is not None
    assert seen.output_weight is not None
    weight = seen.output_weight.double().unflatten(1, (seen.values.shape[0], -1))
    first = (weight * seen.values[:, 0].double()).sum(dim=2)
    added = seen.attention[:, 1:, 0].double().T @ first.T
    return float(added.norm(dim=1).sum() / seen.update[1:].double().norm(dim=1).sum())


def losses(
    loaded: "LoadedModel", ids: Int[np.ndarray, "prompt position"], way: str, *layers: int
) -> Float[np.ndarray, "prompt"]:
    """The loss of prompts, nats a token, with these layers alone altered."""
    import torch

    from posbias.measurement.capture.removal import altered

    change = alteration(way)
    found = []
    with altered(loaded.model, change and change.only(*layers)), torch.no_grad():
        for one in torch.from_numpy(ids):
            said = loaded.model(input_ids=one[None], use_cache=False).logits[0, :-1].double()
            found.append(float(torch.nn.functional.cross_entropy(said, one[1:])))
    return np.array(found)


def sink_trial(
    measured: Mapping[str, "xr.Dataset"], read: Mapping[str, Readings], given: Float[np.ndarray, "layer"]
) -> dict[str, Any]:
    """All that a cell finds, in JSON's terms: estimates are [value, se, freedom], differences "a - b".

    `measured` has the measurement of each of `ROLLED`, `read` the readings of each of `WAYS`, `given` what
    `given_by_layer` gives.
    """
    profiles = {way: Profile.from_samples(read[way]["influence"]) for way in WAYS}
    altered = {way: beside(profiles[way], profiles[PLAIN]) for way in WAYS[1:]}
    rolled = {name: found for key in COLUMN for name, found in held_out_rollouts(measured, key).items()}
    return {
        "share": {way: rounded(read[way]["share"], DIGITS) for way in WAYS},
        "given": rounded(given, DIGITS),
        "loss": {
            way: told(Estimate.of_mean(read[way]["loss"] - (read[PLAIN]["loss"] if way != PLAIN else 0.0)))
            for way in WAYS
        },
        "loss_differences": {
            f"{KEPT_OUT} - {way}": told(Estimate.of_mean(read[KEPT_OUT]["loss"] - read[way]["loss"]))
            for way in (MASKED, EARLY, STRONGEST)
        },
        "influence": _scores({way: [one] for way, one in altered.items()}),
        "influence_differences": _differences(
            {way: [one] for way, one in altered.items()},
            product([KEPT_OUT], (MASKED, EARLY, STRONGEST)),
        ),
        "first": {way: told(_first(one)) for way, one in profiles.items()},
        "profiles": {way: rounded(one.mass, DIGITS) for way, one in profiles.items()},
        "rollouts": _scores(rolled),
        "rollout_differences": _differences(
            rolled,
            (
                (f"{key}, {more}", f"{key}, {less}")
                for key in COLUMN
                for more, less in (
                    (KEPT_OUT, PLAIN),
                    (KEPT_OUT, f"{PLAIN}, dropped"),
                    (f"{KEPT_OUT}, dropped", KEPT_OUT),
                    (f"{PLAIN}, dropped", PLAIN),
                )
            ),
        ),
    }


def beside(one: Profile, other: Profile) -> Scored:
    """The scores of two measured profiles of the same prompts, with the same prompt left out of both at a time."""
    assert one.samples is not None
    prompts = len(one.samples)
    left_out = 1 - np.eye(prompts)
    without = scores(means(one, left_out), means(other, left_out), True)
    shifts = np.sqrt((prompts - 1) / prompts) * (without - without.mean(axis=1, keepdims=True))
    return Scored(scores(one.mass, other.mass, True), np.sqrt((shifts**2).sum(axis=1)), shifts)


def held_out_rollouts(measured: Mapping[str, "xr.Dataset"], key: str) -> dict[str, list[Scored]]:
    """A rollout of `COLUMN` in each of `ROLLED`, made on either half of the prompts and judged on the other half's
    influence in the same way: 'KEY, WAY', and 'KEY, WAY, dropped'."""
    found: dict[str, list[Scored]] = {}
    for even, way in product((True, False), ROLLED):
        rest = half(measured[way], not even)["influence"].values
        judge = Judge.of(Profile.from_samples(rest), 0, "sink removal")
        mass = rollout(half(measured[way], even), key)
        dropped = mass.copy()
        dropped[0] = dropped[1]
        for name, row in ((f"{key}, {way}", mass), (f"{key}, {way}, dropped", dropped)):
            profile = Profile.from_weights(row, measures="rollout")
            found.setdefault(name, []).append(judge.score(profile, name))
    return found


def rollout(measurement: "xr.Dataset", key: str) -> Float[np.ndarray, "position"]:
    """The last row of a rollout of `COLUMN`, whose kernels' rows sum to what those measured sum to."""
    sums = measurement["kernel"].values.astype(np.float64).sum(axis=2)[::-1]
    kernels = COLUMN[key](measurement)
    if key == "fitted":
        kernels = (kernel * row[:, None] for kernel, row in zip(kernels, sums, strict=True))
    return push(last_row(measurement), kernels, measured_mixing(measurement)[::-1])


def _first(profile: Profile) -> Estimate:
    """The share of position 0 in the mean influence, prompts left out one at a time."""
    assert profile.samples is not None
    prompts = len(profile.samples)
    without = means(profile, 1 - np.eye(prompts))[:, 0]
    se = float(np.sqrt((prompts - 1) * without.var()))
    return Estimate(float(profile.mass[0]), se, prompts)


def told(one: Estimate) -> list[float]:
    """[value, se, freedom]."""
    return rounded([one.value, one.se, one.freedom], DIGITS)


def _scores(found: Mapping[str, list[Scored]]) -> dict[str, Any]:
    return {name: _agreement(mean_agreement(folds)) for name, folds in found.items()}


def _differences(found: Mapping[str, list[Scored]], pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {f"{one.more} - {one.less}": _agreement(one.scores) for one in differences_of(found, pairs)}


def _agreement(found: Agreement) -> dict[str, list[float] | None]:
    known = {name: getattr(found, name) for name in SCORES}
    return {name: told(one) if one.known else None for name, one in known.items()}
