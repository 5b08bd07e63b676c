"""The numbers that the figures of a report draw, as tables: for a CSV file, and to be copied off the page."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posbias.comparison.parts import LABELS, STRETCHES, shares
from posbias.profiles.curves import wasserstein
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.reports.pages import Table

if TYPE_CHECKING:
    import xarray as xr

EVEN = "(even spread = 1)"
LOW, HIGH = "95 % low", "95 % high"


def curve(profile: Profile) -> Table:
    """A number for each place and, where it has an error, its 95 % interval (`Profile.limits`).

    Places are those of `attrs["places"]`, else positions.
    """
    places, ends = places_of(profile), profile.limits
    columns = [profile.mass, *(ends or ())]
    samples = 0 if profile.samples is None else len(profile.samples)
    name = "share of the influence" if profile.kind == "mass" else profile.measures
    at_places = "places" in profile.attrs or profile.kind == "rate"
    head = ["place" if at_places else "position", name, LOW, HIGH][: 1 + len(columns)]
    said = f"{name[0].upper()}{name[1:]} by {head[0]}"
    if ends is not None:
        how = f"by Student's t over {samples} samples"
        said += f" with 95 % intervals {'of the counts' if 'counts' in profile.attrs else how}"
    return Table(
        said,
        head,
        [[f"{place:g}", *_texts(row)] for place, row in zip(places, np.array(columns).T, strict=True)],
    )


def places_of(profile: Profile) -> Sequence[float]:
    """Where its numbers stand: `attrs["places"]`, else positions from 0."""
    return profile.attrs.get("places", range(profile.tokens))


def influence(measured: Profile) -> Table:
    """The measured curve in units of an even spread."""
    found = curve(measured)
    rows = [[place, *(f"{float(one) * measured.tokens:.6g}" for one in row)] for place, *row in found.rows]
    return Table("Measured influence", ["position", f"measured {EVEN}", LOW, HIGH][: len(found.head)], rows)


def predicted(measured: Profile, predictions: Mapping[str, Profile]) -> Table:
    """The measured curve and every prediction in units of an even spread."""
    named = {"measured": measured} | {str(one.attrs["predictor"]): one for one in predictions.values()}
    rows = np.array([one.mass * one.tokens for one in named.values()]).T
    return _counted(
        "Measured and predicted influence", "position", [f"{name} {EVEN}" for name in named], rows
    )


def parts(known: Mapping[str, np.ndarray]) -> Table:
    """Shares of the stretches with so much known, and how far (Wasserstein) that is from the measured curve."""
    columns = np.array(
        [*shares(known).values(), [wasserstein(one, known["measured"]) for one in known.values()]]
    )
    names = ["even spread", *LABELS.values()]
    names[-1] += ": as measured"
    rows = [[name, *_texts(row)] for name, row in zip(names, columns.T, strict=True)]
    return Table("The measured curve by parts", ["known", *STRETCHES, "Wasserstein from measured"], rows)


def mixing(measurement: "xr.Dataset") -> Table:
    """Both weights of attention by layer with their intervals over prompts."""
    head, columns = [], []
    for name, label in (("mixing", "norms over the sequence"), ("mixing_token", "mean over tokens")):
        estimates = [Estimate.of_mean(column) for column in measurement[name].values.T]
        head += [f"λ ({label})", LOW, HIGH]
        columns += [[one.value for one in estimates], *zip(*(one.interval for one in estimates), strict=True)]
    return _counted("Weight of attention", "layer", head, np.array(columns).T)


def first_token(measurement: "xr.Dataset") -> Table:
    """By layer: attention on token 0 (mean, and every head), and norms of the residual stream that enters."""
    shares, norms = measurement["sink_share"].values, measurement["residual_norm"].values
    others = norms[:, 1:]
    head = [
        "norm of token 0",
        "median norm of others",
        "least",
        "most",
        "attention on token 0, mean of heads",
    ]
    columns = [
        norms[:, 0],
        np.median(others, axis=1),
        others.min(axis=1),
        others.max(axis=1),
        shares.mean(axis=1),
    ]
    head += [f"head {one}" for one in range(shares.shape[1])]
    return _counted("The first token", "layer", head, np.column_stack([*columns, shares]))


def kernels(measurement: "xr.Dataset", layers: Sequence[int]) -> Table:
    """Attention averaged over prompts and heads: a row for each query of a layer, a column for each key."""
    tokens = measurement.sizes["key"]
    rows = [
        [str(layer), str(query), *_texts(row[: query + 1]), *[""] * (tokens - query - 1)]
        for layer in layers
        for query, row in enumerate(measurement["kernel"].values[layer])
    ]
    return Table("Attention", ["layer", "query", *(f"key {key}" for key in range(tokens))], rows)


def _counted(caption: str, counted: str, head: Sequence[str], rows: np.ndarray) -> Table:
    """A table whose first column counts from 0."""
    return Table(caption, [counted, *head], [[str(at), *_texts(row)] for at, row in enumerate(rows)])


def _texts(row: Iterable[float]) -> list[str]:
    """Six significant digits, nothing where there is no number."""
    return ["" if math.isnan(one) else f"{one:.6g}" for one in row]
