"""The tidy tables that figures are drawn from and claims are put to, one of each kind (`KINDS`).

A row's index says where its numbers are from (`source`: measured, files for the authors' rollout files, printed,
"printed mean" of these, configuration, unknown), of which `model` and `corpus`, and what they are of; `own` is 1
of the paper's models on its texts, which `called` and `text` name. COLUMN_se is a standard error over `n` prompts
(of similarity and R², over heads), COLUMN_flaw why there is no number.

    sizes                    by `what`: parameters, depth, heads, how positions enter; with what is `printed`
    spearman, wasserstein    by `what`: a level, a baseline or a bound of noise; its score and how far it is ahead
    similarity               by `what`: mean and deviation over heads in a region; with a null
    order                    violations of Assumption 4.1
    schedules                by `place` of the text among those of the model, `tokens` and `layer` (NaN: all): λ
    curves                   by `curve` (level, measured, untrained) and `position` (NaN: all): influence, shape
    content                  by `layer` and `head` (NaN: all): the fit of constant and diagonal

Objects (a `profile`, λ `by_prompt`, a `matrix`) are for drawing alone and stay out of files.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias.profiles.claims import LEAST, Above, Evidence, signed_text
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile, spearman, uniform
from posbias.profiles.summary import RISE
from posbias.theory.configs import PRESETS
from posbias.theory.mixing import PreNormInit
from posbias_papers.herasimchyk2026.configs import (
    BINS,
    CORPORA,
    GAP,
    HUB,
    LARGE,
    LEVELS,
    PLOTTED,
    SHORTFALL,
    TABLE1,
    TOKENS,
    VIOLATIONS,
    Reading,
    corpus_of,
    model_of,
    numbers,
)
from posbias_papers.herasimchyk2026.levels import (
    MIXING,
    SCORES,
    WRITTEN,
    Curves,
    apart,
    apart_by_halves,
    architectures,
    attention_only,
    curves_of,
    output_shares,
    profile_of,
    slopes_of,
    weighted,
)
from posbias_papers.herasimchyk2026.measure import Cells, Key, names
from posbias_papers.herasimchyk2026.quantities import fit, homogeneity, order_of

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from posbias.comparison.agreement import Agreement

RECORDS = Path(__file__).with_name("records.csv")
"""The rows of every kind that were measured at the quick effort, of models that stand in for the paper's."""
NOISE = {"split_half": "split-half", "second_measurement": "second measurement", "noiseless": "noise ceiling"}
"""What the noise of the measured influence allows: fields of `Reliability`, and what they are called."""
PRINTED_ERROR = 0.01 / math.sqrt(12)
"""The standard error of a number that is printed to two digits."""
RANKED = 0.5
"""A prediction with a higher rank correlation is said to rank positions as the model does."""
FLOORS = 1.5
"""A rate of violations up to this many noise floors is within the noise, whose own spread is not known."""
PANELS = 4
"""Heads of a model in Figure 5: those at even steps of R², from the worst to the best."""
UNMEASURED = "influence was not measured here"
OBJECTS = ("profile", "by_prompt", "matrix")
"""Columns for drawing alone."""
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured models and how they are read.

    `files` are levels of models that were not measured, and `mixings` their λ by layer as in Figure 1; `tokens` is
    the length of all but Figures 1 and 4, `bins` are those of Table 6, `layers` and `heads` those that Figure 5
    shows (none: `PANELS` of all), `tables` what was made of them already, by kind.
    """

    cells: Cells
    files: Sequence[Curves] = ()
    mixings: Mapping[str, Float[np.ndarray, "layer"]] = field(default_factory=dict)
    tokens: int = TOKENS
    reading: Reading = "corrected"
    bins: int = BINS
    seed: int = 0
    layers: Sequence[int] = ()
    heads: Sequence[int] = ()
    tables: "dict[str, pd.DataFrame]" = field(default_factory=dict)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The cells of the length of the tables, model by model."""
        return tuple(key for key in self.cells if key.tokens == self.tokens)

    def place(self, key: Key) -> int:
        """Which of its model's texts a cell is of, 0 for the first."""
        return names([one for one in self.cells if one.model == key.model], "corpus").index(key.corpus)

    @property
    def leading(self) -> "Iterator[tuple[Key, xr.Dataset]]":
        """The cells of the tables' length on each model's first corpus."""
        return ((key, self.cells[key]) for key in self.keys if not self.place(key))

    def first(self, key: Key) -> "xr.Dataset | None":
        """The measurement of a cell's model on its first corpus."""
        return next((cell for one, cell in self.leading if one.model == key.model), None)

    @cached_property
    def curves(self) -> dict[Key, Curves]:
        """The measured influence of each cell of the tables' length, with its levels."""
        read: dict[str, Any] = {"reading": self.reading, "seed": self.seed}
        return {
            key: curves_of(self.cells[key], key.corpus, first=self.first(key), **read) for key in self.keys
        }

    @property
    def note(self) -> str:
        """In a line, what was measured."""
        if not self.keys:
            return f"Nothing measured at {self.tokens} tokens; {self.reading} reading."
        prompts = sorted({self.cells[key].sizes["prompt"] for key in self.keys})
        many = "–".join(map(str, dict.fromkeys((prompts[0], prompts[-1]))))
        models = ", ".join(names(self.keys, "model"))
        return f"{models}: {many} prompts of {self.tokens} tokens; {self.reading} reading."


def table(kind: str, measured: Measured) -> "pd.DataFrame":
    """The table of one of `KINDS`, made once. Raises as `curves_of` and `order_of`."""
    if kind not in measured.tables:
        about = {"note": measured.note, "reading": measured.reading, "bins": measured.bins}
        measured.tables[kind] = _frame(kind, map(_about, KINDS[kind].rows(measured)), about)
    return measured.tables[kind]


@functools.cache
def recorded(kind: str) -> "pd.DataFrame":
    """What is on record of one of `KINDS`, with what is printed."""
    import pandas as pd

    frame = pd.read_csv(RECORDS).query(f"kind == '{kind}'").drop(columns="kind")
    rows: list[Row] = [
        {str(name): value for name, value in row.items() if value == value}
        for row in frame.to_dict("records")
    ]
    about = {"note": "On record: 32 prompts of 256 tokens.", "bins": BINS}
    return _frame(kind, map(_about, [*KINDS[kind].rows(Measured({})), *rows]), about)


def record(measured: Measured) -> str:
    """What `RECORDS` has of some measurements: rows of every kind, but for those of single positions and heads."""
    import pandas as pd

    kept = []
    for kind in KINDS:
        rows = table(kind, measured).drop(columns=[*OBJECTS, "called", "text", "own"], errors="ignore")
        rows = rows.query("source in ['measured', 'files', 'unknown']").reset_index()
        for level in {"position", "head"} & {*rows.columns}:
            rows = rows.query(f"{level} != {level}")
        kept.append(rows.assign(kind=kind).dropna(axis=1, how="all"))
    return pd.concat(kept).set_index("kind").to_csv(float_format="%.12g")


def _about(row: Row) -> Row:
    """A row with what its model and text are of the paper's."""
    row = {"corpus": "", **row}
    called, text = model_of(row["model"]), corpus_of(row["corpus"])
    own = row["source"] != "measured" or bool(called and text)
    return {**row, "called": called, "text": text, "own": float(own)}


def _frame(kind: str, rows: Iterable[Row], attrs: Mapping[str, Any]) -> "pd.DataFrame":
    import pandas as pd

    levels, rows = ["source", "model", *KINDS[kind].levels], [*rows]
    named = {name: None for row in rows for name in row}
    columns = dict.fromkeys([*levels, *named, *KINDS[kind].columns, "own", "called", "text"])
    frame = pd.DataFrame(rows, columns=[*columns]).set_index(levels)
    frame.attrs.update(attrs)
    return frame


def _number(name: str, number: Estimate, flaw: str = "") -> Row:
    """The columns of an estimate, without its number of draws."""
    return {f"{name}_flaw": flaw} if flaw else {name: number.value, f"{name}_se": number.se}


# --- tables: what is printed, and what was measured --------------------------------------------------------


def _printed(name: str) -> Iterator[Row]:
    for number in numbers(name):
        yield {"source": "printed", "table": name, **vars(number), "claimed": float(number.claimed)}


def _with_printed(name: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of measured numbers, each with the printed one where the paper has the same."""
    printed = {(row["model"], row["corpus"], row["what"]): row for row in _printed(name)}
    for row in rows:
        called, text = model_of(row["model"]), corpus_of(row.get("corpus", ""))
        same = printed.get((called, text, row["what"])) or printed.get((called, "", row["what"]), {})
        shared = {column: same[column] for column in ("printed", "digits", "claimed") if column in same}
        yield {"source": "measured", **row, **shared}


def _sizes(measured: Measured) -> Iterator[Row]:
    yield from _printed("table1")
    for model, hub in HUB.items():
        own = {"parameters (B)": hub.parameters / 1e9, "depth": float(PRESETS[hub.preset].depth)}
        for (what, value), printed in zip(own.items(), TABLE1[model], strict=True):
            about: Row = {"source": "configuration", "model": model, "what": what, "value": value}
            yield about | {"value_se": 0.0, "printed": float(printed), "printed_se": 0.0}
    rows: list[Row] = []
    for key, cell in measured.leading:
        parameters = float(cell.attrs.get("parameters", math.nan)) / 1e9
        sizes = {"parameters (B)": parameters, "depth": cell.sizes["layer"], "heads": cell.sizes["head"]}
        for what, value in sizes.items():
            rows.append({"model": key.model, "what": what, "value": float(value), "value_se": 0.0})
        word = str(cell.attrs.get("positional", "through queries and keys"))
        word = word if slopes_of(cell) is None else "ALiBi"
        rows.append({"model": key.model, "what": "positions", "word": word})
    yield from _with_printed("table1", rows)


def _scores(score: str, measured: Measured) -> Iterator[Row]:
    """The printed scores with means over models and texts, and those measured here.

    `agreement` is larger for better agreement, `lead` by how much a level is ahead of the best other one.
    """
    name, sign = ("table4", 1.0) if score == "spearman" else ("table5", -1.0)
    values = {(one.model, one.corpus, one.what): one.printed for one in numbers(name)}
    for row in _printed(name):
        others = [values[row["model"], row["corpus"], level] for level in LEVELS if level != row["what"]]
        lead = sign * row["printed"] - max(sign * other for other in others)
        about = {
            "depth": float(TABLE1[row["model"]][1]),
            "lead": lead,
            "lead_se": PRINTED_ERROR * math.sqrt(2),
        }
        yield row | about | _rounded(row["printed"], sign, 1)
    smaller = [model for model in TABLE1 if model not in LARGE]
    groups = [("all", [*TABLE1], [corpus]) for corpus in CORPORA]
    groups += [("larger", [*LARGE], [*CORPORA]), ("smaller", smaller, [*CORPORA])]
    for group, models, corpora in groups:
        for level in LEVELS:
            some = [values[model, corpus, level] for model in models for corpus in corpora]
            about = {"source": "printed mean", "model": group, "corpus": " ".join(corpora), "what": level}
            yield about | _rounded(float(np.mean(some)), sign, len(some))
    yield from _with_printed(name, (row for key in measured.keys for row in _scored(score, key, measured)))


def _rounded(value: float, sign: float, numbers: int) -> Row:
    """A printed number, or the mean of several, known up to rounding."""
    se = PRINTED_ERROR / math.sqrt(numbers)
    return {"printed": value, "printed_se": se, "agreement": sign * value, "agreement_se": se}


def scores_of(curves: Curves) -> "dict[str, Agreement]":
    """The agreement of every level and baseline with the measured influence, and what noise allows, by name."""
    compared = curves.comparison
    noise = {name: getattr(compared.reliability, name, None) for name in NOISE}
    known = {name: one for name, one in noise.items() if one is not None}
    return {**compared.agreements, **compared.baselines, **known}


def _scored(score: str, key: Key, measured: Measured) -> Iterator[Row]:
    """The scores of a cell's levels; with heads weighted by what they write, where that was measured."""
    curves, cell = measured.curves[key], measured.cells[key]
    found, held_out, levels = scores_of(curves), curves.comparison.held_out, curves.levels
    ranks = {level: getattr(found[level], score).value for level in levels}
    best = (max if score == "spearman" else min)(ranks, key=lambda level: ranks[level])
    by_output: dict[str, Profile] = {}
    largest = math.nan
    if WRITTEN in cell and np.isfinite(cell[WRITTEN].values).all():
        shares, even = output_shares(cell), architectures(cell, measured.reading, measured.first(key))
        largest = float(shares.max())
        by_output = {one: profile_of(one, weighted(even[one], shares), key.tokens) for one in "bc"}
    for what, agreement in found.items():
        number, first = getattr(agreement, score), getattr(agreement, f"{score}_without_first")
        low, high = number.bounds or (math.nan, math.nan)
        about: Row = {"model": key.model, "corpus": key.corpus, "what": what, "place": measured.place(key)}
        row = about | {"n": len(curves.samples), "low": low, "high": high, "without_first": first.value}
        row |= _number("value", number)
        if held_out is not None and what in held_out.agreements:
            row["held_out"] = getattr(held_out.agreements[what], score).value
        if what in levels:
            row["best"] = float(what == best)
            for other in (one for one in levels if one != what):
                row |= _number(f"ahead_of_{other}", curves.ahead(score, levels[what], levels[other]))
        if what in levels and score == "wasserstein":
            row |= _number("worse_than_even", curves.ahead(score, uniform(key.tokens), levels[what]))
        if what in by_output:
            row |= _number("weighted_ahead", curves.ahead(score, by_output[what], levels[what]))
            weight = float(SCORES[score](by_output[what].mass, curves.influence.mass))
            row |= {"weighted": weight, "largest_weight": largest}
        yield row


def _similarity(measured: Measured) -> Iterator[Row]:
    yield from (row | {"printed_se": 0.0} for row in _printed("table6"))
    rows: list[Row] = []
    for key, cell in measured.leading:
        if "content" not in cell:
            continue
        content = cell["content"].values.astype(np.float64)
        by_region = homogeneity(content, measured.reading, measured.bins, measured.seed)
        for region, pair in by_region.items():
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
    about: Row = {
        "source": "printed",
        "model": "all five",
        "corpus": "all three",
        "rate": VIOLATIONS,
        "gap": GAP,
    }
    yield about | {"shortfall": math.log10(VIOLATIONS * GAP) - math.log10(SHORTFALL)}
    names = ("monotonicity_rate", "monotonicity_gap") if measured.reading == "corrected" else ("kernel",)
    for key in measured.keys:
        cell = measured.cells[key]
        if not all(name in cell for name in names):
            continue
        one = order_of(cell, measured.reading)
        noise = one.rate <= FLOORS * one.floor
        words = f"a rate of {one.rate:.2g} is within the noise of so few prompts (floor {one.floor:.2g})"
        below = Estimate(math.log10(VIOLATIONS) - math.log10(max(one.rate, 1e-12)))
        above = Estimate(math.log10(max(one.gap, 1e-30)) - math.log10(GAP))
        about = {"source": "measured", "model": key.model, "corpus": key.corpus, **vars(one)}
        about |= _number("rate_below", below, words if noise and one.rate > VIOLATIONS else "")
        yield about | _number(
            "gap_above", above, words if noise else "" if one.rate else "no triple violates the order"
        )


def fall(mixing: Float[np.ndarray, "prompt layer"]) -> Estimate:
    """By how much the mean λ of the lower half of the layers exceeds that of the upper; NaN of one layer."""
    half = mixing.shape[1] // 2
    if not half:
        return Estimate(math.nan)
    return Estimate.of_mean(mixing[:, :half].mean(axis=1) - mixing[:, -half:].mean(axis=1))


def _schedules(measured: Measured) -> Iterator[Row]:
    """λ of every cell; of the paper's models, where any is known, that the others are not."""
    longest = {key.model: key for key in sorted(measured.cells, key=lambda key: key.tokens)}
    known = {model_of(key.model) for key in measured.cells if corpus_of(key.corpus)} - {""}
    for key, cell in measured.cells.items():
        mixing = cell[MIXING[measured.reading]].values
        about: Row = {"source": "measured", **vars(key), "place": measured.place(key), "n": len(mixing)}
        half = max(1, mixing.shape[1] // 2)
        parts = {
            "bottom": mixing[:, 0],
            "lower": mixing[:, :half].mean(axis=1),
            "upper": mixing[:, -half:].mean(axis=1),
            "top": mixing[:, -1],
        }
        row = about | {"longest": float(key.tokens == longest[key.model].tokens), "by_prompt": mixing}
        for name, part in parts.items():
            row |= _number(name, Estimate.of_mean(part))
        yield row | _number("fall", fall(mixing), "" if mixing.shape[1] > 1 else "one layer, two needed")
        for layer, column in enumerate(mixing.T):
            yield about | {"layer": float(layer)} | _number("mixing", Estimate.of_mean(column))
    about = {"place": 0, "longest": 1.0}
    for model, mixing in measured.mixings.items():
        if model not in known:
            half = len(mixing) // 2
            falls = Estimate(float(mixing[:half].mean() - mixing[-half:].mean()))
            yield {"source": "files", "model": model, "tokens": PLOTTED, **about, **_number("fall", falls)}
    known |= {*measured.mixings}
    for model in TABLE1:
        if known and model not in known:
            yield {"source": "unknown", "model": model, **about, "fall_flaw": "λ not known"}


def _content(measured: Measured) -> Iterator[Row]:
    """R² and δ of every head and, over all heads, R² less one half and the share of the rarer sign of δ."""
    for key, cell in measured.leading:
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
        about: Row = {"source": "measured", "model": key.model, "corpus": key.corpus}
        row = about | {"n": r2.size, "rarer_sign": min(positive, 1.0 - positive)}
        yield row | _number("explained", explained, flaw)
        drawn = chosen_heads(found.r2, measured.layers, measured.heads)
        for layer, head in np.ndindex(*found.r2.shape):
            row = about | {"layer": float(layer), "head": float(head), "matrix": content[layer, head]}
            row |= {name: float(values[layer, head]) for name, values in vars(found).items()}
            yield row | ({"panel": float(drawn.index((layer, head)))} if (layer, head) in drawn else {})


def chosen_heads(
    r2: Float[np.ndarray, "layer head"], layers: Sequence[int] = (), heads: Sequence[int] = ()
) -> list[tuple[int, int]]:
    """(layer, head) of `PANELS` heads at even steps of R² (fewer where there are fewer heads), rising.

    Among `layers` and `heads` (none: all) that the model has; where both are given, each of them in their order.
    """
    among = [
        (layer, head)
        for layer in (layers or range(r2.shape[0]))
        for head in (heads or range(r2.shape[1]))
        if layer < r2.shape[0] and head < r2.shape[1]
    ]
    if not among or (layers and heads):
        return among
    order = np.argsort([np.nan_to_num(r2[place], nan=-1.0) for place in among], kind="stable")
    steps = dict.fromkeys(np.linspace(0, len(among) - 1, PANELS).round().astype(int).tolist())
    return [among[order[step]] for step in steps]


# --- Figures 2 and 3 ---------------------------------------------------------------------------------------


def _curves(measured: Measured) -> Iterator[Row]:
    """Influence of each model on its first corpus, by level and as measured; of the authors' files by level."""
    for model, level in attention_only():
        about: Row = {"source": "configuration", "model": model, "curve": "a"}
        yield about | {"collapse": float(level.mass[0]) - 0.5}
    files = {curves.model: curves for curves in reversed(measured.files)}
    shown = [(key.model, measured.curves[key], cell) for key, cell in measured.leading]
    for model, curves, cell in [*shown, *((model, files[model], None) for model in reversed(files))]:
        about = {"source": "files" if cell is None else "measured", "model": model, "corpus": curves.corpus}
        about |= {"additive": float(curves.additive)}
        about |= {"n": len(curves.samples)} if curves.measured is not None else {}
        for letter, profile in curves.levels.items():
            row = about | {"curve": letter}
            row |= {"remarks": "; ".join(curves.remarks)} if curves.remarks else {}
            row |= _level(curves, letter, exact=cell is None)
            if cell is not None and "kernel" in cell and letter in "bc":
                row |= _looseness(cell, letter, measured.reading)
            yield row | _shape(profile)
            yield from _positions(about | {"curve": letter}, profile)
        yield about | {"curve": "measured"} | _measured_ends(curves.measured)
        if curves.measured is not None:
            yield from _positions(about | {"curve": "measured"}, curves.measured)
        if cell is not None and curves.additive and "mixing" in cell:
            yield about | {"curve": "untrained"} | _untrained(curves, cell, measured.reading)


def _shape(profile: Profile) -> Row:
    s, mass = profile.summary, profile.mass
    tenth = float(mass[-round(0.1 * mass.size) :].sum())
    shares: Row = {
        "first_token": float(mass[0]),
        "first": s.first_mass,
        "last": s.last_mass,
        "last_tenth": tenth,
    }
    return shares | {"trough": float(s.trough), "verdict": str(s.verdict), "profile": profile}


def _positions(about: Row, profile: Profile) -> Iterator[Row]:
    se = np.full(profile.tokens, np.nan) if profile.se is None else np.asarray(profile.se)
    for position, (mass, error) in enumerate(zip(profile.mass.tolist(), se.tolist(), strict=True)):
        yield about | {"position": float(position), "influence": mass, "influence_se": error}


def _level(curves: Curves, letter: str, exact: bool) -> Row:
    """What is said of one level: it collapses, has two ends, shifts mass, has its minimum where it was measured.

    Levels of measured λ and content have no error over prompts: an effect smaller than the least that counts says
    nothing of them. Those of the authors' files are `exact`.
    """
    profile, s = curves.levels[letter], curves.levels[letter].summary
    effects: dict[str, float] = {}
    row: Row = {"collapse": float(profile.mass[0]) - 0.5} if letter == "a" else {}
    if letter in "bc":
        least = RISE * profile.trough_share.value * s.tokens / s.ends
        effects = {"first_rise": s.ratio[0] - least, "last_rise": s.ratio[2] - least}
    if letter == "c":
        before, place = curves.levels["b"], np.linspace(0.0, 1.0, s.tokens)
        effects["shift"] = float((profile.mass - before.mass) @ place)
        effects["peak_fall"] = before.summary.ratio[0] - s.ratio[0]
    for name, value in effects.items():
        vague = f"{signed_text(value)}, too near the bound without an error over prompts"
        row |= _number(name, Estimate(value), "" if exact or abs(value) >= LEAST else vague)
    if letter == "b":
        known = curves.measured is not None
        row |= _number("minimum_off", curves.minimum("b")) if known else {"minimum_off_flaw": UNMEASURED}
        row |= {name: float(of(profile.mass, curves.influence.mass)) for name, of in SCORES.items() if known}
    return row


def _measured_ends(measured: Profile | None) -> Row:
    """By how much the ends of the measured curve exceed its trough by `RISE`."""
    if measured is None:
        return {"first_rise_flaw": UNMEASURED, "last_rise_flaw": UNMEASURED}
    tokens, width = measured.tokens, measured.summary.ends
    least, even = measured.trough_share, width / tokens
    row = _shape(measured)
    shares = {"first_rise": measured.share(0, width), "last_rise": measured.share(tokens - width, tokens)}
    for name, end in shares.items():
        se = math.hypot(end.se, RISE * least.se) / even
        row |= _number(name, Estimate((end.value - RISE * least.value) / even, se))
    return row


def _untrained(curves: Curves, cell: "xr.Dataset", reading: Reading) -> Row:
    """Level (b) with λ of a network at initialisation, known before training as mask and slopes are.

    What training adds to the prediction is the measured λ. Other positional logits than linear biases come with
    training. The impact statement says that the theory can diagnose architectures.
    """
    level = replace(architectures(cell, reading)["b"], mixing=PreNormInit())
    before = profile_of("b", level, cell.sizes["position"])
    above = curves.estimate(lambda measured: spearman(before.mass, measured) - RANKED)
    nearer = curves.ahead("wasserstein", curves.levels["b"], before)
    row = _number("spearman_above_half", above) | _number("training_nearer", nearer) | _shape(before)
    return row | {name: float(of(before.mass, curves.influence.mass)) for name, of in SCORES.items()}


def _looseness(cell: "xr.Dataset", letter: str, reading: Reading) -> Row:
    rollouts, attention = apart(cell, architectures(cell, reading)[letter])
    halves = _number("apart_by_halves", apart_by_halves(cell, letter, reading))
    return {"rollouts_apart": rollouts, "attention_apart": attention, **halves}


@dataclass(frozen=True)
class Kind:
    """How the rows of a kind of table are made, the levels of its index after `source` and `model`, and columns
    that are always there."""

    rows: Callable[[Measured], Iterable[Row]]
    levels: tuple[str, ...]
    columns: tuple[str, ...]


_SCORES = (
    "printed",
    "claimed",
    "place",
    "value",
    "value_se",
    "best",
    "weighted_ahead",
    "weighted",
    "worse_than_even",
)
_AHEAD = tuple(f"ahead_of_{level}" for level in "abc")
KINDS = {
    "sizes": Kind(_sizes, ("corpus", "what"), ("value", "value_se", "claimed", "word")),
    "spearman": Kind(functools.partial(_scores, "spearman"), ("corpus", "what"), (*_SCORES, *_AHEAD)),
    "wasserstein": Kind(functools.partial(_scores, "wasserstein"), ("corpus", "what"), (*_SCORES, *_AHEAD)),
    "similarity": Kind(_similarity, ("corpus", "what"), ("value", "value_se", "null", "above_null")),
    "order": Kind(_order, ("corpus",), ("floor", "rate_below", "gap_above")),
    "schedules": Kind(
        _schedules, ("place", "tokens", "layer"), ("corpus", "longest", "fall", "bottom", "mixing")
    ),
    "curves": Kind(
        _curves,
        ("corpus", "curve", "position"),
        (
            *(
                "additive",
                "first_token",
                "first_rise",
                "last_rise",
                "shift",
                "peak_fall",
                "collapse",
                "remarks",
            ),
            *("minimum_off", "spearman_above_half", "training_nearer", "rollouts_apart", "apart_by_halves"),
        ),
    ),
    "content": Kind(_content, ("corpus", "layer", "head"), ("panel", "explained", "rarer_sign")),
}
