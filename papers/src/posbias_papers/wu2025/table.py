"""The tidy table of trained networks: a row for each setting and network, which claims are put to.

The index has the setting and the `network`: a window is a causal mask of some `size`, which has all tokens where
there is none, and the mixture is of `strength` 0. Columns: the three gaps (first − middle, first − last, middle −
last) of networks that have learnt to retrieve, and `size_` of each, with the sign of its mean over networks;
in-context accuracy and loss; by how much gap and accuracy change over the last third of training; the sink
metric of the first tokens (as many as a prefix has, else one), with what even attention and untrained networks
give them; and how long all was trained (`iterations`, `networks`, `settled`). `setting` and `outcome` are what a
row is of, `mixture` the outcome of the same setting with the Gaussian mixture (None: not there); `own` says
whether it is a cell of the figure, which is drawn.

Networks decide what is said of them at the paper's own effort, or once they have settled: what networks favour
drifts by factors while they learn, so that a gap after a fortieth of the paper's training is about that stage and
no other. One setting at that effort refutes a claim on every one, and shows one on some. Settled means: all that
is compared had equally many iterations, a quarter of the paper's at least, three networks at least, and the 95 %
intervals of the changes of every gap and of in-context accuracy over the last third of training lie within ±
`LEAST`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from posbias.core.spec import encode
from posbias.profiles.claims import LEAST
from posbias.profiles.estimate import Estimate
from posbias_papers.claims import Claim, Judged
from posbias_papers.contrasts import Quantity
from posbias_papers.study import Study, judge_each
from posbias_papers.wu2025.outcomes import PAIRS, TOKENS, Outcome, Outcomes, records
from posbias_papers.wu2025.settings import EMBEDDINGS, FULL, Embedding, Setting, effort_of

if TYPE_CHECKING:
    import pandas as pd

ROWS = 5
"""A key that fewer queries see (the last four under the causal mask) is left out where sinks are compared."""
CHANGED = {"first-last": "first_last", "in_context_accuracy": "accuracy"}
"""Learning curves, and what columns call them."""
WHOLE = FULL.iterations[2]
"""The paper's iterations."""
LEAST_ITERATIONS, LEAST_NETWORKS = WHOLE // 4, 3
CURVES = (*PAIRS, "in_context_accuracy")
AS_TRAINED = "as trained"
"""The evidence of claims that are about the training itself, at whatever effort."""
INPUTS: tuple[tuple[int | None, Embedding], ...] = ((3, "variance"), (None, "variance"), (None, "deviation"))
"""The middle item (None: the code's) and embeddings of networks that may decide alone, as in the text first: of
its middle item one setting is on record, for what it refutes."""
THIRDS = 2 / 3
"""From this part of training on curves are to change little."""
Columns = Mapping[str, Float[np.ndarray, "network"]]


def table(results: Outcomes, cells: Iterable[Setting], compared: Iterable[Setting] = ()) -> "pd.DataFrame":
    """The table of a figure's cells, and of what they are compared with, as far as there are results of them."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    own = {*cells}
    for cell in dict.fromkeys((*cells, *compared)):
        if cell in results:
            outcome = results[cell]
            columns = {name: column for part in _parts(cell, outcome) for name, column in part.items()}
            about = _about(cell) | {"iterations": outcome.iterations, "networks": len(outcome.loss)}
            about["settled"] = has_settled(outcome)
            about |= {"setting": cell, "outcome": outcome, "own": cell in own}
            about["mixture"] = results.get(replace(cell, inputs="gaussian_mixture"))
            rows += [
                about | {"network": n} | {name: float(column[n]) for name, column in columns.items()}
                for n in range(len(columns["loss"]))
            ]
    return pd.DataFrame(rows).set_index(list(LEVELS))


def outcomes_of(frame: "pd.DataFrame") -> dict[Setting, Outcome]:
    """The outcomes of a figure's own cells, by setting."""
    own = frame[frame["own"].to_numpy(dtype=bool)]
    return dict(zip(own["setting"], own["outcome"], strict=True))


def _about(cell: Setting) -> dict[str, Any]:
    mask = encode(cell.mask)
    return {
        "residual": cell.residual,
        "depth": cell.depth,
        "positional": cell.positional,
        "mask": "causal" if "width" in mask else mask["kind"],
        "size": mask.get("width", mask.get("length", TOKENS)),
        "answers": ",".join(cell.answers),
        "inputs": cell.inputs,
        "normaliser": cell.normaliser,
        "strength": cell.shared_direction if cell.inputs == "fixed_vocabulary" else 0.0,
    }


LEVELS = (*_about(Setting()), "network")


def _parts(cell: Setting, outcome: Outcome) -> Iterator[Columns]:
    learnt = outcome.learnt
    yield {"accuracy": np.where(outcome.finite, outcome.accuracy, np.nan), "loss": outcome.loss}
    for pair in PAIRS:
        gap = np.where(learnt, outcome.gaps[pair], np.nan)
        name = pair.replace("-", "_")
        mean = gap[learnt].mean() if learnt.any() else np.nan
        yield {name: gap, f"size_{name}": np.sign(mean) * gap}
    yield {f"change_{name}": changes(outcome, curve) for curve, name in CHANGED.items()}
    yield _sinks(cell, outcome)
    if cell.mask.kind == "sliding_window":
        attention = np.where(learnt[:, None, None, None], outcome.attention, np.nan)
        width = encode(cell.mask)["width"]
        yield {f"above_even_{where}": _above_even(attention, width, where) for where in ("within", "first")}


def comparable(cell: Setting) -> Bool[np.ndarray, "token"]:
    """Which keys are seen by at least `ROWS` queries, so that a share of these says something."""
    return cell.mask.allowed(TOKENS).sum(axis=0) >= ROWS


def _sinks(cell: Setting, outcome: Outcome) -> Columns:
    """The sink metric of the first tokens, of networks that have learnt, among `comparable` keys."""
    first, learnt, keys = encode(cell.mask).get("length", 1), outcome.learnt[:, None], comparable(cell)
    trained, before = (np.where(learnt, one, np.nan)[:, keys] for one in (outcome.sinks, outcome.untrained))
    others, own, total = trained[:, first:], trained[:, :first], trained.sum(axis=1)
    return {
        "sink": own.mean(axis=1),
        "sink_ahead": own.min(axis=1) - others.max(axis=1),
        "sink_beyond_average": own.min(axis=1) - others.mean(axis=1),
        "sink_share": trained[:, 0] / np.where(total > 0, total, np.nan),
        "sink_even": np.where(outcome.learnt, outcome.even[:first].mean(), np.nan),
        "sink_untrained": before[:, :first].mean(axis=1),
        "untrained_ahead": before[:, :first].min(axis=1) - before[:, first:].max(axis=1),
    }


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


# --- when networks decide ----------------------------------------------------------------------------------


def changes(outcome: Outcome, curve: str) -> Float[np.ndarray, "network"]:
    """By how much each network's curve changes over the last third of training; NaN where it begins later, and of
    a network that was stopped."""
    steps, lines = outcome.curves["iteration"], outcome.curves[curve]
    if steps.size < 2 or steps[0] > THIRDS * steps[-1]:
        return np.full(len(lines), np.nan)
    changed = np.array([line[-1] - np.interp(THIRDS * steps[-1], steps, line) for line in lines])
    return np.where(outcome.finite, changed, np.nan)


def has_settled(outcome: Outcome) -> bool:
    """Whether the 95 % intervals of all changes lie within ± `LEAST`."""
    for curve in CURVES:
        changed = changes(outcome, curve)
        changed = changed[~np.isnan(changed)]
        estimate = Estimate.of_mean(changed) if changed.size else None
        if estimate is None or not estimate.known or max(map(abs, estimate.interval)) > LEAST:
            return False
    return True


def judge(study: Study, frame: "pd.DataFrame", curved: bool = True) -> Iterator[Judged]:
    """The claims of a figure, left open where its networks were not trained long enough to decide them.

    Of a table that lacks some of the figure's cells those alone whose cells are all there, or that the cells that
    are there decide. `curved` says whether what is claimed has learning curves: the sink metric has none.
    """
    import pandas as pd

    cells = pd.DataFrame([_about(cell) | {"setting": cell} for cell in study.cells])
    for judged in judge_each(study.claims, frame):
        rows = _meant(claim := judged.claim, frame)
        lacks = "" if claim.evidence == AS_TRAINED or rows.empty else _lacks(rows, curved)
        shown = judged.withheld(lacks and f"{lacks}; {study.decided_by}")
        if shown.verdict == "undecided" and shown.seen is None and not lacks:
            shown = replace(shown, why=f"{shown.why}; more networks, or longer training, could decide")
        whole = {*_meant(claim, cells)["setting"]} <= {*rows["setting"]}
        alone = None if whole and shown.verdict != "undecided" else _decided_alone(claim, study)
        if alone or whole:
            yield alone or shown


def _meant(claim: Claim, frame: "pd.DataFrame") -> "pd.DataFrame":
    """The rows that a claim is about."""
    return claim.quantity.rows(frame) if isinstance(claim.quantity, Quantity) else frame


def _decided_alone(claim: Claim, study: Study) -> Judged | None:
    """What settings on record at the paper's effort decide, whatever the others show.

    That a claim on every setting fails, and that one on some setting (`any`) holds; never one on a `share`.
    """
    of = getattr(claim.quantity, "of", None)
    contrast = of.keywords["contrast"] if isinstance(of, partial) else "each"
    for middle, embedding in INPUTS:
        spent = replace(effort_of(WHOLE, LEAST_NETWORKS, embedding=embedding), middle=middle)
        known = records(spent, study.cells)
        for judged in judge_each([claim], table(known, study.cells)) if known else ():
            wanted = {"any": "" if middle else "holds", "share": ""}.get(contrast.split()[0], "fails")
            if judged.verdict == wanted:
                words = f"{EMBEDDINGS[embedding]}{', its middle item too' * (middle is not None)}"
                effort = f"{WHOLE:,} iterations × {LEAST_NETWORKS} networks or more, {words}"
                why = f"{judged.why}; {effort}"
                return replace(judged, why=why, effort=effort, tested_on="trained at the paper's effort")
    return None


def decided_by(study: str, minutes: str, curved: bool) -> str:
    """What could decide claims on networks not trained so long; `minutes` is what that takes, in words."""
    less = f", or {LEAST_ITERATIONS:,} × {LEAST_NETWORKS} where curves settle" if curved else ""
    return (
        f"{WHOLE:,} iterations × {LEAST_NETWORKS} networks or more (`posbias paper wu2025 {study} --effort full`, "
        f"{minutes} on two cores){less} could decide"
    )


def _lacks(rows: "pd.DataFrame", curved: bool) -> str:
    """Why the networks of some rows decide nothing; "" if they do."""
    networks = int(rows["networks"].to_numpy().min())
    spent = rows["iterations"].to_numpy()
    least, most = int(spent.min()), int(spent.max())
    if networks < LEAST_NETWORKS:
        return f"{networks} networks, {LEAST_NETWORKS} needed"
    if least >= WHOLE:
        return ""
    if least != most:
        return f"{least:,} to {most:,} iterations, equally many needed for all that is compared"
    if least < LEAST_ITERATIONS:
        return f"{least:,} of the paper's {WHOLE:,} iterations: a stage of training"
    if not curved:
        return f"{least:,} of the paper's {WHOLE:,} iterations, and the sink metric has no learning curve"
    cells = rows["settled"].droplevel("network")
    settled = cells.to_numpy(dtype=bool)[~cells.index.duplicated()]
    moving = settled.size - int(settled.sum())
    return f"{least:,} iterations, after which {moving} of {settled.size} had not settled" if moving else ""
