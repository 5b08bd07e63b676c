"""How influence falls with distance: as a power of it, or exponentially? After Brändel et al. 2026.

Their abstract has the median sensitivity of the next token's prediction to embeddings r tokens back, relative to
that at r = 0, as γ + β(r + 1)^−p with p from .7 to .9 in trained models, on shuffled tokens too, and not in
untrained ones. Here it is the gradient of ln P of the likeliest next token. Queries are from the second half of a
prompt and distances up to half of it: so every query has every distance, and the first tokens, where influence is
large wherever they stand, are in none. Distances lie in bins that grow with them; a prompt's number in a bin is
the median over queries and distances. Forms (`decay_fits`) are fitted to the median over every other prompt and
judged on each of the rest.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from posbias.core.seeds import stream
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Above, Below, Evidence, Near, mean
from posbias.reports.pages import Table
from posbias_papers.claims import quantity
from posbias_papers.extensions.cells import Found, OwnCell, claims_after, own_study, rounded
from posbias_papers.extensions.decay_fits import FORMS, deviation, fit_decay
from posbias_papers.study import Results
from posbias_papers.wu2025.observed import MODELS

TOKENS, QUERIES, BINS, RESAMPLES = 256, 6, 20, 100
PLACES = tuple(np.linspace(TOKENS // 2, TOKENS - 1, QUERIES).astype(int).tolist())
EDGES = np.unique(np.geomspace(1, TOKENS // 2, BINS).round().astype(int))
DISTANCES = (EDGES[:-1] + EDGES[1:] - 1) / 2.0
"""The middle of each bin."""
GIVEN = ("text", "shuffled", "untrained")


@dataclass(frozen=True)
class JacobianCell(OwnCell):
    """A model, and what it is given: text, its tokens shuffled, or text before training (one network)."""

    model: str
    given: str

    kind = "jacobian_cell"

    @property
    def where(self) -> str:
        """'tiny-rope, shuffled'."""
        return f"{self.model}, {self.given}"

    def run(self, effort: int) -> Found:
        """Measure so many prompts: medians by bin, influence at distance 0 being 1."""
        from posbias_papers.measurement.query_influence import query_influence
        from posbias_papers.measurement.untrained import folder_of, untrained_like

        asked: dict[str, Any] = {"tokens": TOKENS, "prompts": effort, "queries": PLACES}
        if self.given == "untrained":
            network = untrained_like(self.model, seed=0)
            rows = query_influence(network, tokenizer=folder_of(self.model), **asked)
        else:
            rows = query_influence(self.model, scramble=self.given == "shuffled", **asked)
        medians = [by_distance(prompt) for prompt in rows["influence"].values]
        return {"distances": DISTANCES.tolist(), "medians": [*map(rounded, medians)]}


def by_distance(rows: Float[np.ndarray, "query position"]) -> Float[np.ndarray, "bin"]:
    """The median over queries and distances of each bin, of influence relative to that at distance 0."""
    relative = np.stack(
        [row[place::-1][: TOKENS // 2] / row[place] for row, place in zip(rows, PLACES, strict=True)]
    )
    return np.array([np.median(relative[:, low:high]) for low, high in itertools.pairwise(EDGES)])


def held_out(found: Found) -> dict[str, np.ndarray]:
    """Each prompt's deviation from the forms fitted to the other half, and from that half's median itself."""
    medians, r = np.array(found["medians"]), np.array(found["distances"])
    scores = {name: np.empty(len(medians)) for name in (*FORMS, "median")}
    for half in (0, 1):
        own, other = slice(half, None, 2), np.median(medians[1 - half :: 2], axis=0)
        for name in FORMS:
            scores[name][own] = fit_decay(r, other, name).deviation(r, medians[own])
        scores["median"][own] = deviation(other, medians[own])
    return scores


def exponent(found: Found) -> Estimate:
    """p, fitted to the median over all prompts, with the error of a bootstrap over them; NaN where β is 0."""
    medians, r = np.array(found["medians"]), np.array(found["distances"])
    count, draw = len(medians), stream(0, "jacobian.bootstrap")
    fits = [
        fit_decay(r, np.median(medians[rows], axis=0), "power").own[0]
        for rows in draw.integers(count, size=(RESAMPLES, count))
    ]
    se = float(np.std(fits, ddof=1) * np.sqrt(count / (count - 1)))
    fit = fit_decay(r, np.median(medians, axis=0), "power")
    return Estimate(fit.own[0] if fit.beta else math.nan, se, count)


CELLS = tuple(JacobianCell(model, given) for model in MODELS for given in GIVEN)


@quantity
def _ahead(results: Results, other: str, given: str) -> Iterator[Evidence]:
    """By how much the power is nearer to held-out prompts than another form, in nats, prompt by prompt."""
    for cell in CELLS:
        if cell.given == given and cell in results:
            scores = held_out(results[cell])
            yield mean(cell.where, scores[other] - scores["power"], draws="prompts")


@quantity
def _exponents(results: Results, given: str) -> Iterator[Evidence]:
    for cell in CELLS:
        if cell.given == given and cell in results:
            yield Evidence(cell.where, exponent(results[cell]))


CLAIMS = claims_after(
    "jacobian",
    "2606.29139",
    f"SmolLM2-135M-Instruct and five small decoders of ours; distances 1 to {TOKENS // 2 - 1}",
    f"16 prompts of {TOKENS} tokens (SmolLM2: 8), {QUERIES} queries each; one untrained network of each kind",
    {
        1: (
            "On text a power of the distance is nearer to held-out prompts than an exponential",
            _ahead("exponential", "text"),
            Above(),
        ),
        2: ("So it is on shuffled tokens", _ahead("exponential", "shuffled"), Above()),
        3: (
            "In untrained networks it is not nearer (by .02 nats at most)",
            _ahead("exponential", "untrained"),
            Below(0.02, 0.0),
        ),
        4: (
            "On text the power is nearer than a stretched exponential too, which has one number more",
            _ahead("stretched", "text"),
            Above(),
        ),
        5: (
            "On text the exponent is between .7 and .9, as stated elsewhere of other models",
            _exponents("text"),
            Near(0.8, 0.1),
        ),
        6: ("On shuffled tokens it is between .7 and .9 too", _exponents("shuffled"), Near(0.8, 0.1)),
    },
)


def _tables(results: Results) -> Iterator[Table]:
    head = ("model", "given", "p", "γ", "β", *FORMS, "the other half itself", "exponential − power")
    rows = []
    for cell, found in ((cell, results[cell]) for cell in CELLS):
        scores, medians = held_out(found), np.median(found["medians"], axis=0)
        fit = fit_decay(np.array(found["distances"]), medians, "power")
        numbers = [str(exponent(found)), f"{fit.gamma:.2g}", f"{fit.beta:.2g}"]
        numbers += [f"{scores[name].mean():.3f}" for name in (*FORMS, "median")]
        ahead = Estimate.of_mean(scores["exponential"] - scores["power"])
        rows.append([cell.model, cell.given, *numbers, str(ahead)])
    yield Table(
        "The power γ + β(r + 1)^−p, and mean |ln| deviation of held-out prompts from each form", head, rows
    )


def _draw(results: Results) -> Any:
    from posbias.reports.plots.style import direct_label, new_figure
    from posbias_papers.plots.position_curves import draw_position_curves

    figure = new_figure(7.2, 4.6)
    for ax, model in zip(figure.subplots(2, 3, sharex=True, sharey=True).flat, MODELS, strict=True):
        curves, dots = {}, []
        for given in (cell.given for cell in CELLS if cell.model == model):
            dots.append(np.median(results[JacobianCell(model, given)]["medians"], axis=0))
            for form in ("power", "exponential")[: 2 if given == "text" else 1]:
                curves[f"{given}, {form}"] = fit_decay(DISTANCES, dots[-1], form).at(DISTANCES)
        draw_position_curves(ax, DISTANCES, curves, measured=dots, key=model == MODELS[1])
        ax.set(xscale="log", xlabel="distance (tokens)", ylabel="influence (at 0 = 1)")
        direct_label(ax, model, "black")
        ax.label_outer()
    return figure


STUDY = own_study(
    "jacobian",
    "how influence falls with distance",
    "Does gradient influence fall as a power of the distance, on shuffled tokens and before training too?",
    CELLS,
    "2606.29139",
    claims=CLAIMS,
    effort={"quick": 8, "full": 32},
    unit="prompts",
    minutes={"quick": 6.0, "full": 24.0},
    tables=_tables,
    draw=_draw,
    needs="torch",
    uses=(("brandel2026", "the question, the form and its exponents as the abstract tells them"),),
)
