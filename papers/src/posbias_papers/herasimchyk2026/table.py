"""The tidy tables that figures are drawn from and claims are put to, one of each kind (`KINDS`).

A row's index says where its numbers are from (`source`: measured, files for the authors' rollout files,
figures for their figures, printed, configuration), of which `model` and `corpus`, and what they are of; `own` is 1
of the paper's models on its texts, which `called` and `text` name. COLUMN_se is a standard error over `n` prompts
(of similarity and R², over heads), COLUMN_flaw why there is no number.

    sizes                    by `what`: parameters and depth, with what is `printed`
    spearman, wasserstein    by `what`: a level, a baseline or a bound of noise; its score and how far it is ahead
    similarity               by `what`: mean and deviation over heads in a region; with a null
    order                    violations of Assumption 4.1
    schedules                by `place` of the text among those of the model, `tokens` and `layer` (NaN: all): λ
    curves                   by `curve` (level or measured) and `position` (NaN: all): influence, shape
    content                  by `layer` and `head` (NaN: all): the fit of constant and diagonal

Objects (a `profile`, a `matrix`) are for drawing alone and stay out of files.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.claims import LEAST, Above
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile, uniform
from posbias.profiles.summary import RISE
from posbias.theory.configs import PRESETS
from posbias_papers.claims import Evidence, signed_text
from posbias_papers.herasimchyk2026 import configs
from posbias_papers.herasimchyk2026.configs import TOKENS, Reading, corpus_of, model_of
from posbias_papers.herasimchyk2026.levels import (
    MIXING,
    SCORES,
    Curves,
    attention_only,
    curves_of,
    published_levels,
)
from posbias_papers.herasimchyk2026.measure import Cells, Key, names
from posbias_papers.herasimchyk2026.quantities import fit, homogeneity, order_of

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

RECORDS = Path(__file__).with_name("records.csv")
"""The rows of every kind that were measured at the quick effort, of models that stand in for the paper's."""
NOISE = {"split_half": "split-half", "second_measurement": "second measurement", "noiseless": "noise ceiling"}
"""What the noise of the measured influence allows: fields of `Reliability`, and what they are called."""
FLOORS = 1.5
"""A rate of violations up to this many noise floors is within the noise, whose own spread is not known."""
PANELS = 4
"""Heads of a model in Figure 5: those at even steps of R², from the worst to the best."""
UNMEASURED = "influence was not measured here"
OBJECTS = ("profile", "matrix")
"""Columns for drawing alone."""
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured models and how they are read.

    `files` are levels of models that were not measured; `tokens` is the length of all but Figures 1 and 4,
    `tables` what was made of them already, by kind.
    """

    cells: Cells
    files: Sequence[Curves] = ()
    tokens: int = TOKENS
    reading: Reading = "corrected"
    seed: int = 0
    tables: "dict[str, pd.DataFrame]" = field(default_factory=dict)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The cells of the length of the tables, model by model."""
        return tuple(key for key in self.cells if key.tokens == self.tokens)

    def place(self, key: Key) -> int:
        """Which of its model's texts a cell is of, 0 for the first."""
        return names([other for other in self.cells if other.model == key.model], "corpus").index(key.corpus)

    @cached_property
    def known(self) -> set[tuple[str, str]]:
        """The paper's models and texts that were measured here."""
        return {(model_of(key.model), corpus_of(key.corpus)) for key in self.cells}

    @property
    def published(self) -> Curves | None:
        """What the authors' figures have of a model at the tables' length, unless it was measured here."""
        return published_levels() if self.tokens == TOKENS and configs.PUBLISHED not in self.known else None

    @property
    def leading(self) -> "dict[Key, xr.Dataset]":
        """The cells of the tables' length on each model's first corpus."""
        return {key: self.cells[key] for key in self.keys if not self.place(key)}

    @cached_property
    def curves(self) -> dict[Key, Curves]:
        """The measured influence of each cell of the tables' length, with its levels."""
        first = {key.model: cell for key, cell in self.leading.items()}
        return {
            key: curves_of(self.cells[key], key.corpus, self.reading, first.get(key.model), self.seed)
            for key in self.keys
        }

    @property
    def note(self) -> str:
        """In a line, what was measured."""
        prompts = [self.cells[key].sizes["prompt"] for key in self.keys]
        what = f"at least {min(prompts)} prompts" if prompts else "nothing measured"
        return f"{what} of {self.tokens} tokens, {self.reading} reading"


def table(kind: str, measured: Measured) -> "pd.DataFrame":
    """The table of one of `KINDS`, made once. Raises as `curves_of` and `order_of`."""
    if kind not in measured.tables:
        measured.tables[kind] = _frame(kind, KINDS[kind][0](measured), measured.note)
    return measured.tables[kind]


@functools.cache
def _records() -> "pd.DataFrame":
    import pandas as pd

    return pd.read_csv(RECORDS).set_index("kind")


@functools.cache
def recorded(kind: str) -> "pd.DataFrame":
    """The rows on record of one of `KINDS`, with what is printed."""
    rows = [
        {str(name): value for name, value in row.items() if value == value}
        for row in _records().loc[[kind]].to_dict("records")
    ]
    note = f"32 prompts of {TOKENS} tokens (λ: up to 512) of the bundled text, on record"
    return _frame(kind, [*KINDS[kind][0](Measured({})), *rows], note)


def record(measured: Measured) -> str:
    """What `RECORDS` has of some measurements: rows of every kind, but for those of single positions and heads."""
    import pandas as pd

    kept = []
    for kind in KINDS:
        rows = table(kind, measured).drop(columns=[*OBJECTS, "called", "text", "own"], errors="ignore")
        rows = rows.query("source in ['measured', 'files']").reset_index()
        for level in {"position", "head"} & {*rows.columns}:
            rows = rows.query(f"{level} != {level}")
        kept.append(rows.assign(kind=kind).dropna(axis=1, how="all"))
    return pd.concat(kept).set_index("kind").to_csv(float_format="%.12g")


def _frame(kind: str, rows: Iterable[Row], note: str) -> "pd.DataFrame":
    """Rows with what their model and text are of the paper's; columns on record are always there."""
    import pandas as pd

    index, named = ["source", "model", *KINDS[kind][1]], []
    for row in rows:
        called, text = model_of(row["model"]), corpus_of(row.get("corpus", ""))
        own = row["source"] != "measured" or bool(called and text)
        named.append({"corpus": "", **row, "called": called, "text": text, "own": float(own)})
    on_record = _records().loc[[kind]].dropna(axis=1, how="all").columns
    known = [name.removesuffix("_flaw") for name in on_record]
    columns = dict.fromkeys([*index, *(name for row in named for name in row), *on_record, *known])
    frame = pd.DataFrame(named, columns=[*columns]).set_index(index)
    frame.attrs["note"] = note
    return frame


def _number(name: str, number: Estimate, flaw: str = "") -> Row:
    """The columns of an estimate, without its number of draws."""
    return {f"{name}_flaw": flaw} if flaw else {name: number.value, f"{name}_se": number.se}


# --- tables: what is printed, and what was measured --------------------------------------------------------


def _printed(name: str) -> Iterator[Row]:
    yield from ({"source": "printed", **row} for row in configs.printed(name))


def _with_printed(name: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of measured numbers, each with the printed one where the paper has the same."""
    known = {(row["model"], row["corpus"], row["what"]): row for row in configs.printed(name)}
    for row in rows:
        called, text = model_of(row["model"]), corpus_of(row.get("corpus", ""))
        same = known.get((called, text, row["what"])) or known.get((called, "", row["what"]), {})
        shared = {column: same[column] for column in ("printed", "digits", "claimed") if column in same}
        yield {"source": "measured", **row, **shared}


def _sizes(measured: Measured) -> Iterator[Row]:
    yield from _printed("table1")
    for model, hub in configs.HUB.items():
        own = {"parameters (B)": hub.parameters / 1e9, "depth": float(PRESETS[hub.preset].depth)}
        for (what, value), number in zip(own.items(), configs.TABLE1[model], strict=True):
            about: Row = {"source": "configuration", "model": model, "what": what, "value": value}
            yield about | {"value_se": 0.0, "printed": number, "printed_se": 0.0}
    rows: list[Row] = []
    for key, cell in measured.leading.items():
        parameters = float(cell.attrs.get("parameters", math.nan)) / 1e9
        for what, value in {"parameters (B)": parameters, "depth": float(cell.sizes["layer"])}.items():
            rows.append({"model": key.model, "what": what, "value": value, "value_se": 0.0})
    yield from _with_printed("table1", rows)


def _scores(score: str, measured: Measured) -> Iterator[Row]:
    """The printed scores, those measured here, and of the curve in the authors' figures that of each level, as
    published and with content and slopes as the model has them (`published_curves`)."""
    name = "table4" if score == "spearman" else "table5"
    yield from _printed(name)
    if (curves := measured.published) is not None:
        about: Row = {"source": "figures", "model": curves.model, "corpus": curves.corpus, "place": 0}
        masses = {letter: level.mass for letter, level in curves.levels.items()}
        masses |= {what: np.array(mass) for what, mass in configs.published_curves().items() if "_" in what}
        scores = {what: float(SCORES[score](mass, curves.influence.mass)) for what, mass in masses.items()}
        rows = (about | {"what": what} | _number("value", Estimate(of)) for what, of in scores.items())
        yield from _with_printed(name, rows)
    yield from _with_printed(name, (row for key in measured.keys for row in _scored(score, key, measured)))


def _scored(score: str, key: Key, measured: Measured) -> Iterator[Row]:
    """The scores of a cell's levels and baselines, and what noise allows."""
    curves = measured.curves[key]
    compared, levels = curves.comparison, curves.levels
    noise = {name: getattr(compared.reliability, name, None) for name in NOISE}
    agreements = {**compared.agreements, **compared.baselines, **noise}
    ranks = {level: getattr(agreements[level], score).value for level in levels}
    best = (max if score == "spearman" else min)(ranks, key=lambda level: ranks[level])
    held_out = {} if compared.held_out is None else compared.held_out.agreements
    for what, agreement in agreements.items():
        if agreement is None:
            continue
        number = getattr(agreement, score)
        row: Row = {"model": key.model, "corpus": key.corpus, "what": what, "place": measured.place(key)}
        row |= dict(zip(("low", "high"), number.bounds or (math.nan, math.nan), strict=True))
        row |= {"n": len(curves.samples)} | _number("value", number)
        if what in held_out:
            row["held_out"] = getattr(held_out[what], score).value
        if what in levels:
            row["best"] = float(what == best)
            for other in (level for level in levels if level != what):
                row |= _number(f"ahead_of_{other}", curves.ahead(score, levels[what], levels[other]))
            if score == "wasserstein":
                row |= _number("worse_than_even", curves.ahead(score, uniform(key.tokens), levels[what]))
        yield row


def _similarity(measured: Measured) -> Iterator[Row]:
    yield from _printed("table6")
    rows: list[Row] = []
    for key, cell in measured.leading.items():
        if "content" not in cell:
            continue
        content = cell["content"].values.astype(np.float64)
        for region, pair in homogeneity(content, measured.reading, seed=measured.seed).items():
            value, other = (part[np.isfinite(part)] for part in pair)
            if not value.size:
                continue
            about: Row = {"model": key.model, "corpus": key.corpus, "n": value.size}
            mean, above = Estimate.of_mean(value), _number("above_null", Estimate.of_mean(value - other))
            row = about | {"what": f"{region}, mean", "null": float(other.mean())} | above
            rows.append(row | _number("value", mean))
            deviation = Estimate(float(value.std()), mean.se / math.sqrt(2))
            row = about | {"what": f"{region}, deviation", "null": float(other.std())}
            rows.append(row | _number("value", deviation))
    yield from _with_printed("table6", rows)


# --- Section 4, λ by layer, content ------------------------------------------------------------------------


def _order(measured: Measured) -> Iterator[Row]:
    """Powers of ten by which the share of violating triples is below the printed one, and the mean gap above."""
    known = {"rate": configs.VIOLATIONS, "gap": configs.GAP}
    yield {"source": "printed", "model": "all five", "corpus": "all three", **known}
    needed = "monotonicity_rate" if measured.reading == "corrected" else "kernel"
    for key in measured.keys:
        if needed not in measured.cells[key]:
            continue
        order = order_of(measured.cells[key], measured.reading)
        noise = order.rate <= FLOORS * order.floor
        words = f"a rate of {order.rate:.2g} is within the noise of so few prompts (floor {order.floor:.2g})"
        below = Estimate(math.log10(configs.VIOLATIONS) - math.log10(max(order.rate, 1e-12)))
        above = Estimate(math.log10(max(order.gap, 1e-30)) - math.log10(configs.GAP))
        row = {"source": "measured", "model": key.model, "corpus": key.corpus, **vars(order)}
        row |= _number("rate_below", below, words if noise and order.rate > configs.VIOLATIONS else "")
        flaw = words if noise else "" if order.rate else "no triple violates the order"
        yield row | _number("gap_above", above, flaw)


def _schedules(measured: Measured) -> Iterator[Row]:
    """λ of every cell, and of the paper's models that were not measured by half of the layers."""
    longest = {key.model: key.tokens for key in sorted(measured.cells, key=lambda key: key.tokens)}
    for key, cell in measured.cells.items():
        mixing = cell[MIXING[measured.reading]].values
        about: Row = {"source": "measured", **vars(key), "place": measured.place(key), "n": len(mixing)}
        row = about | {"longest": float(key.tokens == longest[key.model])}
        for name, layer in {"bottom": 0, "top": -1}.items():
            row |= _number(name, Estimate.of_mean(mixing[:, layer]))
        half = mixing.shape[1] // 2
        if half:
            fall = Estimate.of_mean(mixing[:, :half].mean(axis=1) - mixing[:, -half:].mean(axis=1))
            yield row | _number("fall", fall)
        else:
            yield row | {"fall_flaw": "one layer, two needed"}
        for layer, column in enumerate(mixing.T):
            yield about | {"layer": float(layer)} | _number("mixing", Estimate.of_mean(column))
    for row in configs.rollout_files():
        if (row["model"], row["corpus"]) not in measured.known:
            about = {"source": "files", "model": row["model"], "corpus": row["corpus"], "tokens": TOKENS}
            about |= {"place": configs.CORPORA.index(row["corpus"]), "longest": 1.0}
            yield about | _number("fall", Estimate(row["lower"] - row["upper"]))


def _content(measured: Measured) -> Iterator[Row]:
    """R² and δ of every head and, over all heads, R² less one half and the share of the rarer sign of δ.

    Of the paper's models that were not measured δ alone.
    """
    for row in configs.rollout_files():
        if (row["model"], row["corpus"]) not in measured.known:
            about: Row = {"source": "files", "model": row["model"], "corpus": row["corpus"]}
            yield about | {"positive": row["positive"], "offset": row["offset"]}
    for key, cell in measured.leading.items():
        if "content" not in cell:
            continue
        content, variance = cell["content"].values.astype(np.float64), cell.get("content_variance")
        found = fit(content, None if variance is None else variance.values / cell.sizes["prompt"])
        r2, most = (values[np.isfinite(values)] for values in (found.r2, found.most))
        explained, positive = Estimate.of_mean(r2 - 0.5), float((found.offset > 0).mean())
        flaw = ""
        # noise may be what is not explained
        if Evidence("", explained, test=Above()).verdict() == "fails" and most.mean() > 0.5:
            flaw = f"R² {r2.mean():.2f} as it is, up to {most.mean():.2f} without noise"
        about = {"source": "measured", "model": key.model, "corpus": key.corpus}
        row = about | {"n": r2.size, "rarer_sign": min(positive, 1.0 - positive), "positive": positive}
        yield row | _number("explained", explained, flaw)
        drawn = chosen_heads(found.r2)
        for layer, head in np.ndindex(*found.r2.shape):
            row = about | {"layer": float(layer), "head": float(head), "matrix": content[layer, head]}
            row |= {name: float(values[layer, head]) for name, values in vars(found).items()}
            yield row | ({"panel": float(drawn.index((layer, head)))} if (layer, head) in drawn else {})


def chosen_heads(r2: Float[np.ndarray, "layer head"]) -> list[tuple[int, int]]:
    """(layer, head) of `PANELS` heads at even steps of R² (fewer where there are fewer heads), rising."""
    order = np.argsort(np.nan_to_num(r2, nan=-1.0), axis=None, kind="stable")
    steps = dict.fromkeys(np.linspace(0, order.size - 1, PANELS).round().astype(int).tolist())
    return [divmod(int(order[step]), r2.shape[1]) for step in steps]


# --- Figures 2 and 3 ---------------------------------------------------------------------------------------


def _curves(measured: Measured) -> Iterator[Row]:
    """Influence of each model on its first corpus, by level and as measured; of the authors' files by level, of
    their figures as measured and by the levels there."""
    for model, level in attention_only():
        about: Row = {"source": "configuration", "model": model, "curve": "a"}
        yield about | {"collapse": float(level.mass[0]) - 0.5}
    first_text = {curves.model: curves for curves in reversed(measured.files)}
    shown = [("measured", measured.curves[key]) for key in measured.leading]
    shown += [("files", curves) for curves in reversed(first_text.values())]
    shown += [("figures", measured.published)] if measured.published is not None else []
    for source, curves in shown:
        about = {"source": source, "model": curves.model, "corpus": curves.corpus}
        about |= {"additive": float(curves.additive)}
        about |= {"n": len(curves.samples)} if source == "measured" else {}
        for letter, profile in curves.levels.items():
            effects = _agreement(curves, letter)
            if source != "figures":
                effects |= _level(curves, letter, exact=source == "files")
            yield about | {"curve": letter} | effects | _shape(profile)
            yield from _positions(about | {"curve": letter}, profile)
        if curves.measured is not None or curves.model != configs.PUBLISHED[0]:
            yield about | {"curve": "measured"} | _measured_ends(curves.measured)
        if curves.measured is not None:
            yield from _positions(about | {"curve": "measured"}, curves.measured)


def _shape(profile: Profile) -> Row:
    s, mass = profile.summary, profile.mass
    tenth = float(mass[-round(0.1 * mass.size) :].sum())
    row: Row = {
        "first_token": float(mass[0]),
        "first": s.first_mass,
        "last": s.last_mass,
        "last_tenth": tenth,
    }
    return row | {"trough": float(s.trough), "verdict": str(s.verdict), "profile": profile}


def _positions(about: Row, profile: Profile) -> Iterator[Row]:
    se = np.full(profile.tokens, np.nan) if profile.se is None else np.asarray(profile.se)
    for position, (mass, error) in enumerate(zip(profile.mass.tolist(), se.tolist(), strict=True)):
        yield about | {"position": float(position), "influence": mass, "influence_se": error}


def _level(curves: Curves, letter: str, exact: bool) -> Row:
    """The effects of one level: it collapses, has two ends, shifts mass.

    Levels of measured λ and content have no error over prompts: an effect smaller than the least that counts says
    nothing of them. Those of the authors' files are `exact`.
    """
    profile, s = curves.levels[letter], curves.levels[letter].summary
    effects: dict[str, float] = {}
    row: Row = {"collapse": float(profile.mass[0]) - 0.5} if letter == "a" else {}
    if letter in "bc":
        between = np.convolve(profile.mass[s.ends : -s.ends], np.full(s.ends, s.tokens / s.ends), "valid")
        least = float(between.min())
        effects = {"first_rise": s.ratio[0] - least, "last_rise": s.ratio[2] - least}
    if letter == "c":
        before, place = curves.levels["b"], np.linspace(0.0, 1.0, s.tokens)
        effects["shift"] = float((profile.mass - before.mass) @ place)
        effects["peak_fall"] = before.summary.ratio[0] - s.ratio[0]
    for name, value in effects.items():
        vague = f"{signed_text(value)}, too near the bound without an error over prompts"
        row |= _number(name, Estimate(value), "" if exact or abs(value) >= LEAST else vague)
    return row


def _agreement(curves: Curves, letter: str) -> Row:
    """Of level (b), whether its minimum lies where it was measured, and its scores."""
    if letter != "b" or (curves.measured is None and curves.model == configs.PUBLISHED[0]):
        return {}
    if curves.measured is None:
        return {"minimum_off_flaw": UNMEASURED}
    both = curves.levels["b"].mass, curves.measured.mass
    scores = {name: float(of(*both)) for name, of in SCORES.items()}
    return _number("minimum_off", curves.minimum("b")) | scores


def _measured_ends(measured: Profile | None) -> Row:
    """By how much the ends of the measured curve exceed its trough by `RISE`."""
    if measured is None:
        return {"first_rise_flaw": UNMEASURED, "last_rise_flaw": UNMEASURED}
    tokens, width = measured.tokens, measured.summary.ends
    least, even = measured.trough_share, width / tokens
    row = _shape(measured)
    shares = {"first_rise": measured.share(0, width), "last_rise": measured.share(tokens - width, tokens)}
    for name, end in shares.items():
        se = 0.0 if measured.se is None else math.hypot(end.se, RISE * least.se) / even
        row |= _number(name, Estimate((end.value - RISE * least.value) / even, se))
    return row


KINDS: dict[str, tuple[Callable[[Measured], Iterable[Row]], tuple[str, ...]]] = {
    "sizes": (_sizes, ("corpus", "what")),
    "spearman": (functools.partial(_scores, "spearman"), ("corpus", "what")),
    "wasserstein": (functools.partial(_scores, "wasserstein"), ("corpus", "what")),
    "similarity": (_similarity, ("corpus", "what")),
    "order": (_order, ("corpus",)),
    "schedules": (_schedules, ("place", "tokens", "layer")),
    "curves": (_curves, ("corpus", "curve", "position")),
    "content": (_content, ("corpus", "layer", "head")),
}
"""How the rows of a kind of table are made, and the levels of its index after `source` and `model`."""
