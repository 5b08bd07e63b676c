"""What is kept of a cell as arrays: labelled ones (xarray) of what was measured, tensors of what training made."""

import json
import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from posbias.core.formats import Header, Tensors, need_xarray
from posbias.core.spec import decode
from posbias.training.averages import Averages
from posbias.training.kernels import Rollout
from posbias.training.loop import Trained
from posbias.training.probes import Evaluation, Gap
from posbias.training.sinks import Sinks, default_starts, over_starts
from posbias.training.specification import Experiment

if TYPE_CHECKING:
    import xarray as xr

_TRAINED, _UNTRAINED, _UNIFORM = "sink_queries", "sink_queries_untrained", "sink_queries_uniform"
_SHARES = {_TRAINED: "sink_share", _UNTRAINED: "sink_share_untrained", _UNIFORM: "sink_share_uniform"}
"""The same query by query, as cells had it before they were counted over queries."""
_CURVE, _ROLLOUT = "curve_", "rollout_"
_LARGE = ("attention", _TRAINED, _UNTRAINED)


def tensors_of(trained: Trained) -> Tensors:
    """Weights and learning curves by name; who was stopped, and what training cost."""
    curves = {_CURVE + name: np.asarray(curve) for name, curve in trained.curves.items()}
    weights = {name: tensor.cpu().numpy() for name, tensor in trained.weights.items()}
    stopped = {str(seed): iteration for seed, iteration in trained.stopped.items()}
    return Tensors(weights | curves, {"stopped": stopped, "cost": dict(trained.cost)})


def trained_of(header: Header, tensors: Tensors) -> Trained:
    """What `tensors_of` was made from."""
    curves, weights = {}, {}
    for name, array in tensors.arrays.items():
        if name.startswith(_CURVE):
            curves[name.removeprefix(_CURVE)] = array
        else:
            weights[name] = torch.tensor(array)
    stopped = {int(seed): iteration for seed, iteration in tensors.note["stopped"].items()}
    experiment = decode(Experiment, header.specification)
    return Trained(experiment, weights, curves, stopped, dict(tensors.note["cost"]))


def as_dataset(trained: Trained, evaluation: Evaluation, counted: Sinks, rollout: Rollout) -> "xr.Dataset":
    """A cell as labelled arrays; `docs/training.md` describes variables and dimensions."""
    xarray, experiment = need_xarray(), trained.experiment
    gaps = list(evaluation.gaps.values())
    variables = {
        **_averages("loss", ("member",), evaluation.loss),
        **_averages("in_context_accuracy", ("member",), evaluation.in_context_accuracy),
        **_averages("gap", ("pair", "member"), *(gap.over_all for gap in gaps)),
        **_averages("gap_informative", ("pair", "member"), *(gap.over_informative for gap in gaps)),
        "informative_share": (("pair", "member"), np.stack([gap.share for gap in gaps])),
        "pair_items": (("pair", "side"), np.array([(gap.first, gap.second) for gap in gaps])),
        "accuracy_by_position": (("member", "item"), evaluation.accuracy_by_position),
        "accuracy_alone": (("member", "item"), evaluation.accuracy_alone),
        "attention": (("member", "layer", "query", "key"), rollout.attention),
        _TRAINED: (("member", "layer", "start", "key", "threshold"), counted.trained),
        _UNTRAINED: (("member", "layer", "start", "key", "threshold"), counted.untrained),
        _UNIFORM: (("start", "key", "threshold"), counted.uniform),
        "allowed": (("query", "key"), counted.allowed.astype(np.int8)),
        "mixing": (("member", "layer"), rollout.mixing),
        **{_ROLLOUT + name: (("member", "position"), masses) for name, masses in rollout.profiles.items()},
        **{
            _CURVE + name: (("member", "step"), np.asarray(curve))
            for name, curve in trained.curves.items()
            if name != "iteration"
        },
    }
    task, depth = experiment.task, experiment.network.depth
    labels = {
        "member": list(experiment.seeds),
        "step": np.asarray(trained.curves["iteration"]),
        "pair": list(evaluation.gaps),
        "item": np.arange(task.items),
        "layer": np.arange(depth),
        **{name: np.arange(task.tokens) for name in ("query", "key", "position")},
        "threshold": list(counted.thresholds),
        "start": list(counted.starts),
    }
    told = {
        "test_seed": evaluation.seed,
        "sink_sequences": counted.sequences,
        "rollout_sequences": rollout.sequences,
        "assumptions": json.dumps(list(rollout.assumptions)),
        "largest_gap": evaluation.largest_gap,
        "stopped": json.dumps({str(seed): at for seed, at in trained.stopped.items()}),
        "machine": platform.machine(),
    }
    dataset = xarray.Dataset(variables, coords=labels, attrs=told)
    for name in _LARGE:
        dataset[name].encoding = {"zlib": True, "complevel": 4}
    return dataset


def _averages(name: str, dimensions: tuple[str, ...], *rows: Averages) -> dict[str, Any]:
    """Averages as three variables: the values, their errors over sequences, the sequences counted."""
    parts = {"": "values", "_error": "errors", "_count": "counts"}
    made = {name + ending: np.stack([getattr(row, part) for row in rows]) for ending, part in parts.items()}
    return {key: (dimensions, one if len(dimensions) > 1 else one[0]) for key, one in made.items()}


def evaluation_of(dataset: "xr.Dataset", trained: Trained, header: Header) -> Evaluation:
    """What the networks answered."""

    def averages(name: str, place: Mapping[str, int]) -> Averages:
        return Averages(*(dataset[name + ending].isel(place).values for ending in ("", "_error", "_count")))

    gaps = {}
    for number, name in enumerate(dataset["pair"].values):
        place = {"pair": number}
        first, second = (int(item) for item in dataset["pair_items"].isel(place).values)
        both = averages("gap", place), averages("gap_informative", place)
        gaps[str(name)] = Gap(first, second, *both, dataset["informative_share"].isel(place).values)
    return Evaluation(
        seeds=trained.experiment.seeds,
        sequences=int(header.amount or 0),
        seed=int(dataset.attrs["test_seed"]),
        gaps=gaps,
        loss=averages("loss", {}),
        in_context_accuracy=averages("in_context_accuracy", {}),
        accuracy_by_position=dataset["accuracy_by_position"].values,
        accuracy_alone=dataset["accuracy_alone"].values,
        largest_gap=float(dataset.attrs["largest_gap"]),
        stopped=trained.stopped,
    )


def sinks_of(dataset: "xr.Dataset") -> Sinks:
    """How attention gathers, also of cells that had it query by query."""
    allowed = dataset["allowed"].values.astype(bool)
    if "start" in dataset.coords:
        starts = tuple(int(one) for one in dataset["start"].values)
        counts = {name: dataset[name].values for name in _SHARES}
    else:
        starts = default_starts(len(allowed))
        counts = {name: over_starts(dataset[shares].values, starts) for name, shares in _SHARES.items()}
    return Sinks(
        thresholds=tuple(float(one) for one in dataset["threshold"].values),
        starts=starts,
        allowed=allowed,
        trained=counts[_TRAINED],
        untrained=counts[_UNTRAINED],
        uniform=counts[_UNIFORM],
        sequences=int(dataset.attrs["sink_sequences"]),
    )


def rollout_of(dataset: "xr.Dataset") -> Rollout:
    """Mean attention, mixing and profiles."""
    return Rollout(
        attention=dataset["attention"].values,
        mixing=dataset["mixing"].values,
        profiles={
            str(name).removeprefix(_ROLLOUT): masses.values
            for name, masses in dataset.data_vars.items()
            if str(name).startswith(_ROLLOUT)
        },
        assumptions=tuple(json.loads(dataset.attrs["assumptions"])),
        sequences=int(dataset.attrs["rollout_sequences"]),
    )
