"""The tidy table of trained networks: a row for each setting and network, which claims are put to.

The index has the setting and the `network`: a window is a causal mask of some `size`, which has all tokens where
there is none, and the mixture is of `strength` 0. Columns: the three gaps (first − middle, first − last, middle −
last) of networks that have learnt to retrieve, and `size_` of each, with the sign of its mean over networks;
in-context accuracy and loss; by how much gap and accuracy change over the last third of training; the sink
metric of the first tokens (as many as a prefix has, else one), with what even attention and untrained networks
give them; and how long all was trained (`iterations`, `networks`, `settled`). `outcome` is the
`Outcome`, `mixture` that of the same setting with the Gaussian mixture (None: not there).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.core.spec import encode
from posbias_papers.wu2025.outcomes import PAIRS, Outcome
from posbias_papers.wu2025.settings import Setting
from posbias_papers.wu2025.settled import changes, has_settled

if TYPE_CHECKING:
    import pandas as pd

LEVELS = (
    "residual",
    "depth",
    "positional",
    "mask",
    "size",
    "answers",
    "inputs",
    "normaliser",
    "strength",
    "network",
)
CHANGED = {"first-last": "first_last", "in_context_accuracy": "accuracy"}
"""Learning curves, and what columns call them."""
TOKENS = 17
"""Of a prompt of the retrieval task."""
Columns = Mapping[str, Float[np.ndarray, "network"]]


def table(results: Mapping[Setting, Outcome], cells: Iterable[Setting]) -> "pd.DataFrame":
    """The table of some cells, as far as there are results of them."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for cell in dict.fromkeys(cells):
        if cell in results:
            columns = {name: column for part in _parts(cell, results[cell]) for name, column in part.items()}
            about = _about(cell) | _spent(results[cell]) | {"outcome": results[cell]}
            about["mixture"] = results.get(replace(cell, inputs="gaussian_mixture"))
            networks = len(columns["loss"])
            rows += [
                about | {"network": n} | {name: float(column[n]) for name, column in columns.items()}
                for n in range(networks)
            ]
    return pd.DataFrame(rows).set_index(list(LEVELS))


def _about(cell: Setting) -> dict[str, Any]:
    mask = encode(cell.mask)
    size = mask.get("width", mask.get("length", TOKENS))
    return {
        "residual": cell.residual,
        "depth": cell.depth,
        "positional": cell.positional,
        "mask": "causal" if "width" in mask else mask["kind"],
        "size": size,
        "answers": ",".join(cell.answers),
        "inputs": cell.inputs,
        "normaliser": cell.normaliser,
        "strength": cell.shared_direction if cell.inputs == "fixed_vocabulary" else 0.0,
    }


def _spent(outcome: Outcome) -> dict[str, Any]:
    experiment = outcome.trained.experiment
    spent = {"iterations": experiment.iterations, "networks": len(experiment.seeds)}
    return spent | {"settled": has_settled(outcome.trained)}


def _parts(cell: Setting, outcome: Outcome) -> Iterator[Columns]:
    gaps, finite = outcome.gaps, np.isfinite(outcome.gaps.loss)
    learnt = gaps.learnt
    yield {"accuracy": np.where(finite, gaps.accuracy, np.nan), "loss": np.where(finite, gaps.loss, np.nan)}
    for pair in PAIRS:
        gap = np.where(learnt, gaps.gaps[pair], np.nan)
        name = pair.replace("-", "_")
        mean = gap[learnt].mean() if learnt.any() else np.nan
        yield {name: gap, f"size_{name}": np.sign(mean) * gap}
    yield {f"change_{name}": changes(outcome.trained, curve) for curve, name in CHANGED.items()}
    yield _sinks(cell, outcome, finite)
    if cell.mask.kind == "sliding_window":
        attention = np.where(learnt[:, None, None, None], outcome.attention, np.nan)
        width = encode(cell.mask)["width"]
        yield {f"above_even_{where}": _above_even(attention, width, where) for where in ("within", "first")}


def _sinks(cell: Setting, outcome: Outcome, finite: np.ndarray) -> Columns:
    """The sink metric of the first tokens, of networks that have learnt."""
    first, sinks = encode(cell.mask).get("length", 1), outcome.sinks
    trained, untrained = sinks.trained, sinks.untrained
    others, own = trained[:, first:], trained[:, :first]
    columns = {
        "sink": own.mean(axis=1),
        "sink_ahead": own.min(axis=1) - others.max(axis=1),
        "sink_beyond_average": own.min(axis=1) - others.mean(axis=1),
        "sink_share": trained[:, 0] / np.where(trained.sum(axis=1) > 0, trained.sum(axis=1), np.nan),
        "sink_even": np.full(len(trained), sinks.uniform[:first].mean()),
        "sink_untrained": untrained[:, :first].mean(axis=1),
    }
    whole: dict[str, np.ndarray] = {}
    for name, column in columns.items():
        whole[name] = np.full(finite.shape, np.nan)
        whole[name][finite] = np.where(sinks.learnt, column, np.nan)
    return whole


def _above_even(
    attention: Float[np.ndarray, "network layer query key"], width: int, where: str
) -> Float[np.ndarray, "network"]:
    """Mean attention beyond the even share to the first token in sight, over layers and queries.

    `within` the window: of queries whose window does not hold token 0, to the first token in it; `first`: of those
    from the second on whose window does, to token 0.
    """
    queries = np.arange(width, attention.shape[-1]) if where == "within" else np.arange(1, width)
    keys = np.maximum(queries - width + 1, 0)
    return (attention[:, :, queries, keys] - 1.0 / (queries - keys + 1)).mean(axis=(1, 2))
