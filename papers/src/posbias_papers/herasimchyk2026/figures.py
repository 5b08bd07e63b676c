"""Tables 1 to 6, Figures 1 to 5 and Section 4 of Herasimchyk et al. 2026, each a function of a tidy table.

The paper's models are in the figure that the paper has them in, from top to bottom; of all others, Figure 2 has
those that add a line by distance to their logits (ALiBi), Figure 3 the rest. Figure 1 is of each model's first
corpus, Figure 4 of all others; Tables 2 and 3 show the first corpus, Tables 4 and 5 all of them. What contrasts in
`claims.csv` cannot say are the functions of `FUNCTIONS`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.claims import ELSEWHERE, Above, Claim, Evidence, Judged, Near, Printed, undecided
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import spearman
from posbias.reports.plots.style import INK, TEXT
from posbias_papers.contrasts import AtHand, read_claims, share
from posbias_papers.herasimchyk2026.configs import (
    FIGURES,
    HUB,
    LARGE,
    PLOTTED,
    PROMPTS,
    SHORTFALL,
    TOKENS,
    decided_by,
    stand_in,
)
from posbias_papers.herasimchyk2026.table import NOISE, OBJECTS, recorded, table
from posbias_papers.pages import Page, Table
from posbias_papers.plots.captions import captioned_figure, settle
from posbias_papers.plots.content import ContentMap, content_size, draw_content_rows
from posbias_papers.plots.levels import draw_levels, draw_mixing_series, levels_size
from posbias_papers.study import Basis, Recorded, Studies, Study, judge_each

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

HERE = "the models and texts measured here, which are not the paper's"
"""The scope of what is judged of them."""
DIGITS = {"spearman": 2, "wasserstein": 3}
NOISE_NOTE = (
    "Split-half: one half of the prompts against the other; second measurement: these against as many others, and "
    "noise ceiling: a noiseless predictor against these, both inferred (posbias.comparison.agreement)."
)
KNOWN = 0.05
"""A number whose standard error is larger does not confirm a printed one."""
LEVEL = 0.05
"""How often a row of true numbers may be found wrong."""
AT_HAND = {
    "source == 'printed": "the paper's own numbers",
    "source == 'configuration'": "the configurations on the hub",
}
"""What claims about rows of such a source rest on, which needs nothing measured."""
WHEN, ON_RECORD = "2026-11-27", "32 prompts"
"""When what is on record was measured, and on how much."""
SOURCES = (
    ("abnar2020", "attention rollout"),
    ("press2022", "ALiBi"),
    ("bigscience2022", "BLOOM, one of the paper's models"),
    ("mosaic2023a", "MPT-7B, one of the paper's models"),
    ("mosaic2023b", "MPT-30B, one of the paper's models"),
    ("penedo2023", "Falcon-RW, one of the paper's models"),
)
"""What every study uses of whom."""
INFLUENCE = (
    ("simonyan2014", "influence as a gradient"),
    ("wu2025", "the level without residual connections"),
)
"""The same where levels are shown with measured influence."""


# --- what contrasts cannot say -----------------------------------------------------------------------------


def near_printed(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That parameters are the printed ones to within a billion; a name such as 7b is no rounded number."""
    for row in _rows(rows):
        where = f"{row['model']}, {row['value']:.2f} for {row['printed']:g}"
        yield Evidence(where, Estimate(row["value"]), test=Near(row["printed"], 1.0))


def compared(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """Every number that the paper prints and that was measured here, with its error, against the printed one.

    Ours may lie half of the last digit away, and as many standard errors as the furthest of all numbers of its
    model is off by chance in 5 % (Bonferroni): over prompts, in Table 6 over heads.
    """
    known = "source == 'measured' and printed == printed and value == value and value_se == value_se"
    ours = _rows(rows.query(known))
    counts = Counter(row["model"] for row in ours if row["claimed"])
    for row in ours:
        errors = NormalDist().inv_cdf(1.0 - LEVEL / 2 / max(1, counts[row["model"]]))
        test = Printed(Estimate(row["printed"]), int(row["digits"]), errors=errors, known=KNOWN)
        where = f"{row['what']} on {row['text']}" if row["text"] else row["what"]
        yield Evidence(where, Estimate(row["value"], row["value_se"]), test=test)


def printed_row(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That the numbers of a printed row are those measured here; without any, what measures them."""
    evidence = [*compared(rows)]
    yield from evidence
    if not evidence:
        model, table = rows.reset_index()[["model", "table"]].dropna().iloc[0]
        source, what = HUB[model].source, "mean content logits" if table == "table6" else "measured influence"
        yield Evidence(
            model,
            flaw=f"needs {model} itself ({source}), {PROMPTS:,} prompts of the paper's texts; `posbias paper "
            f"herasimchyk2026 {table} --models {source} --corpora TEXT --effort full` measures it, the authors' "
            f"rollout files hold no {what}",
        )


def nearer_in_larger(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """That (c) is nearer than (b) in most printed cells, and in more of the larger models' than of the others'."""
    scores = {
        (row["model"], row["corpus"], row["what"]): Estimate(row["agreement"], row["agreement_se"])
        for row in _rows(rows)
    }
    cells: dict[bool, list[Evidence]] = {True: [], False: []}
    for model, corpus in dict.fromkeys(place[:2] for place in scores):
        gain = scores[model, corpus, "c"] - scores[model, corpus, "b"]
        cells[model in LARGE].append(Evidence(f"{model}, {corpus}", gain, test=Above(least=0.0)))
    yield share("printed cells", [*cells[True], *cells[False]])
    large, small = (share("printed cells", cells[size]).estimate for size in (True, False))
    yield Evidence("share in larger models less that in others", large - small, test=Above())


def by_depth(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """The rank correlation of depth with agreement, the mean of a model's printed scores.

    Its error is that of as many unrelated ranks, 1/√(models − 1): five models tell little.
    """
    by_model: dict[float, list[float]] = {}
    for row in _rows(rows):
        by_model.setdefault(row["depth"], []).append(row["agreement"])
    means = [float(np.mean(scores)) for scores in by_model.values()]
    correlation = float(spearman(np.array([*by_model]), np.array(means)))
    estimate = Estimate(correlation, 1.0 / math.sqrt(len(means) - 1))
    yield Evidence("depth against agreement", estimate)


def looser(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """By how much the rollouts of other encodings are further apart than those of the loosest linear bias.

    A rollout of split logits and one of the measured attention, with the same λ: Section 7 says that for RoPE such
    splits are generally too loose. Errors are from the two halves of the prompts.
    """
    known = [row for row in _rows(rows) if row["apart_by_halves"] == row["apart_by_halves"]]
    biases = [row for row in known if row["additive"]]
    if not biases:
        return
    bias = max(biases, key=lambda row: row["rollouts_apart"])
    for row in known:
        if not row["additive"]:
            apart, least = (
                Estimate(one["apart_by_halves"], one["apart_by_halves_se"], 2) for one in (row, bias)
            )
            places = (f"{one['model']} ({one['rollouts_apart']:.4f})" for one in (row, bias))
            yield Evidence(" against ".join(places), apart - least)


FUNCTIONS = {one.__name__: one for one in (near_printed, printed_row, nearer_in_larger, by_depth, looser)}
CLAIMS = read_claims(Path(__file__).with_name("claims.csv"), FUNCTIONS)


def _rows(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    return frame.reset_index().to_dict("records")


def _at_hand(claim: Claim, kind: str) -> Claim:
    """A claim about what is printed or configured, which is decided before anything is measured."""
    quantity: Any = claim.quantity
    basis = next((basis for where, basis in AT_HAND.items() if where in quantity.where), "")
    if not basis:
        return claim
    return replace(claim, quantity=AtHand(lambda: quantity(recorded(kind)), basis, quantity))


# --- tables of a page --------------------------------------------------------------------------------------


def listing(caption: str, frame: "pd.DataFrame", columns: Mapping[str, str]) -> Iterator[Table]:
    """The rows of a frame in words, if there are any: by the head of a column, its name and format.

    The format ± gives the number with its standard error; a number that is not there is a dash.
    """
    rows = [[_cell(row, *spec.split()) for spec in columns.values()] for row in _rows(frame)]
    if rows:
        yield Table(caption, [*columns], rows)


def _cell(row: Mapping[str, Any], name: str, form: str = "") -> str:
    value = row[name]
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return "–"
    if form != "±":
        return f"{value:{form}}".replace("-", "−")
    n = row.get("n", math.nan)
    return str(Estimate(value, row[f"{name}_se"], int(n) if n == n else None)).replace("-", "−")


def crossed(
    caption: str, frame: "pd.DataFrame", text: Callable[[dict[str, Any]], str], names: Mapping[str, str]
) -> Iterator[Table]:
    """A row for each model, a column for each text and each of `names` that stands in `what`."""
    cells = {(row["model"], row["corpus"], row["what"]): text(row) for row in _rows(frame)}
    models, corpora = (dict.fromkeys(place[level] for place in cells) for level in (0, 1))
    places = [
        (corpus, what) for corpus in corpora for what in names if (corpus, what) in {one[1:] for one in cells}
    ]
    head = ["model", *(f"{corpus} {names[what]}".strip() for corpus, what in places)]
    if models:
        yield Table(caption, head, [[m, *(cells.get((m, *at), "–") for at in places)] for m in models])


def score_text(score: Estimate | None, digits: int) -> str:
    """'0.60 [0.49, 0.72]', a dash for none."""
    if score is None or math.isnan(score.value):
        return "–"
    around = f" [{score.interval[0]:.{digits}f}, {score.interval[1]:.{digits}f}]" if score.bounds else ""
    return f"{score.value:.{digits}f}{around}".replace("-", "−")


def _size_tables(frame: "pd.DataFrame", name: str) -> Iterator[Table]:
    names = {"parameters (B)": "parameters (B)", "depth": "depth", "heads": "heads", "positions": "positions"}
    measured, printed, own = (
        frame.query(f"source == '{source}'") for source in ("measured", "printed", "configuration")
    )
    yield from crossed(
        "Models measured here",
        measured,
        lambda row: _cell(row, "word" if row["what"] == "positions" else "value", ".3g"),
        names,
    )
    yield from crossed("Printed in the paper", printed, lambda row: _cell(row, "printed", "g"), names)
    yield from crossed("Their configurations on the hub", own, lambda row: _cell(row, "value", ".5g"), names)


def _score_tables(frame: "pd.DataFrame", name: str) -> Iterator[Table]:
    featured, digits = name in ("table2", "table3"), 2 if name in ("table2", "table4") else 3
    names = {**{letter: f"({letter})" for letter in "abcd"}, **NOISE}
    measured = frame.query("source == 'measured' and place == 0" if featured else "source == 'measured'")
    printed = frame.query("source == 'printed'")
    if featured:
        printed = printed.query(f"model in {FIGURES['fig2']} and text == 'FineWeb-Edu'")

    def text(row: Mapping[str, Any]) -> str:
        ends = (row["low"], row["high"]) if row["low"] == row["low"] else None
        words = score_text(Estimate(row["value"], row["value_se"], ends=ends), digits)
        return f"**{words}**" if row["best"] == 1 else words

    yield from crossed("Measured here, with 95 % intervals over prompts", measured, text, names)
    yield from crossed("Printed in the paper", printed, lambda row: f"{row['printed']:.2f}", names)
    columns = {
        "model": "model",
        "corpus": "corpus",
        "level": "what",
        "even": "value .3f",
        "weighted": "weighted .3f",
        "better by": "weighted_ahead ±",
        "largest weight": "largest_weight .2f",
    }
    if not featured and "weighted" in frame:
        rows = frame.query("weighted == weighted")
        yield from listing("Heads weighted by what they write, in place of evenly (ours)", rows, columns)


def _similarity_tables(frame: "pd.DataFrame", name: str) -> Iterator[Table]:
    columns = {"model": "model", "of": "what", "similarity": "value ±", "normal numbers": "null .3f"}
    measured, printed = (frame.query(f"source == '{source}'") for source in ("measured", "printed"))
    yield from listing("Measured here, over layers and heads", measured, columns)
    names = dict.fromkeys(printed.index.get_level_values("what"))
    yield from crossed(
        "Printed in the paper", printed, lambda row: f"{row['printed']:.2f}", {n: n for n in names}
    )


def _order_tables(frame: "pd.DataFrame", name: str) -> Iterator[Table]:
    columns = {
        "model": "model",
        "corpus": "corpus",
        "violating triples": "rate .2g",
        "noise floor": "floor .2g",
        "mean gap of those": "gap .2g",
        "worst layer": "worst g",
    }
    yield from listing("Measured here", frame.query("source == 'measured'"), columns)
    printed = frame.query("source == 'printed'")
    caption = f"Printed in the paper (at most, about; expected shortfall {SHORTFALL:.0e})"
    yield from listing(caption, printed, dict([*columns.items()][:-1]))


def _mixing_tables(frame: "pd.DataFrame", name: str) -> Iterator[Table]:
    columns = {
        "model": "model",
        "corpus": "corpus",
        "tokens": "tokens",
        "prompts": "n",
        "layer 0": "bottom ±",
        "lower half": "lower ±",
        "upper half": "upper ±",
        "last layer": "top ±",
    }
    rows = frame.query(f"source == 'measured' and place {'>' if name == 'fig4' else '=='} 0")
    if not rows.empty:
        rows = rows.query("bottom == bottom")
    yield from listing("λ, mean ± standard error over prompts", rows, columns)


def _curve_tables(frame: "pd.DataFrame", name: str) -> Iterator[Table]:
    models, named = shown_models(frame, name), {"model": "model", "corpus": "corpus", "curve": "curve"}
    columns = {
        **named,
        "token 0": "first_token .3f",
        "first 5 %": "first .3f",
        "last 5 %": "last .3f",
        "last 10 %": "last_tenth .3f",
        "trough at": "trough .0f",
        "verdict": "verdict",
    }
    rows = frame.query("first_token == first_token").query(f"model in {models}")
    yield from listing(
        "Shape of every curve (shares of all influence)", rows.query("curve != 'untrained'"), columns
    )
    if name == "fig2":
        rows = frame.query("source == 'measured' and additive == 1 and curve in ['b', 'untrained']")
        columns = {
            **named,
            "Spearman": "spearman .3f",
            "Wasserstein": "wasserstein .3f",
            "verdict": "verdict",
        }
        rows = rows.query("first_token == first_token")
        yield from listing("Level (b) before training and with the measured λ (ours)", rows, columns)
    elif "rollouts_apart" in frame:
        rows = frame.query("rollouts_apart == rollouts_apart")
        columns = {"model": "model", "level": "curve", "rollouts apart": "rollouts_apart .4f"}
        columns |= {"error": "apart_by_halves_se .4f", "attention apart": "attention_apart .3f"}
        about = "1-Wasserstein between rollouts, total variation between rows of attention"
        yield from listing(f"How far split logits lie from the measured attention ({about})", rows, columns)


# --- drawing -----------------------------------------------------------------------------------------------


def shown_models(frame: "pd.DataFrame", name: str) -> list[str]:
    """The models of Figure 2 or 3: the paper's in its order, then others; without any, those it is about."""
    rows = _rows(frame.query("additive == additive and curve == 'b'"))
    about = [row for row in rows if row["additive"] == (name == "fig2") and row["model"]]
    own = [row["model"] for model in FIGURES[name] for row in rows if row["called"] == model]
    chosen = [*own, *(row["model"] for row in about if not row["called"])]
    return [*dict.fromkeys(chosen or (row["model"] for row in about))]


def draw_curves(frame: "pd.DataFrame", caption: str, name: str) -> "Figure":
    """Draw a row per model, a column per level, and the measured influence."""
    profiles: dict[str, dict[str, Any]] = {model: {} for model in shown_models(frame, name)}
    for row in _rows(frame.query("first_token == first_token")):
        if row["model"] in profiles:
            profiles[row["model"]][row["curve"]] = row["profile"]
    rows = [
        (model, {letter: by[letter] for letter in "abcd" if letter in by}, by.get("measured"))
        for model, by in profiles.items()
    ]
    figure, part = captioned_figure(*levels_size(rows), caption)
    draw_levels(part, rows)
    return settle(figure)


def draw_schedules(frame: "pd.DataFrame", caption: str, name: str) -> "Figure":
    """Draw λ by layer, a row for each corpus, a column for each model, a line for each length."""
    rows = [row for row in _rows(frame.query("source == 'measured'")) if row["layer"] != row["layer"]]
    rows = [row for row in rows if bool(row["place"]) == (name == "fig4")]
    models, corpora = ([*dict.fromkeys(row[name] for row in rows)] for name in ("model", "corpus"))
    size = (max(5.0, 0.5 + 3.4 * len(models)), 2.9 * len(corpora))
    figure, part = captioned_figure(*size, caption)
    panels = part.subplots(len(corpora), len(models), squeeze=False)
    for corpus, axes in zip(corpora, panels, strict=True):
        for model, ax in zip(models, axes, strict=True):
            own = [row for row in rows if (row["model"], row["corpus"]) == (model, corpus)]
            if not own:
                ax.set_axis_off()
                continue
            draw_mixing_series(ax, {f"{row['tokens']:,} tokens": row["by_prompt"] for row in own})
            words = {"transform": ax.transAxes, "ha": "right", "va": "top", "fontsize": TEXT, "color": INK}
            ax.text(0.98, 0.96, f"{model}\n{corpus}", **words)
    return settle(figure)


def draw_content(frame: "pd.DataFrame", caption: str, name: str) -> "Figure":
    """Draw a row per model: heads from the worst to the best described by constant and diagonal, or the chosen."""
    maps = content_maps(frame)
    figure, part = captioned_figure(*content_size([*maps.items()]), caption)
    draw_content_rows(part, [*maps.items()])
    return settle(figure)


def content_maps(frame: "pd.DataFrame") -> dict[str, list[ContentMap]]:
    """The heads that Figure 5 shows: of the paper's models, in its order, and of models that are none of its.

    Its fifth model, which the paper leaves out, is there where there are no others.
    """
    if "panel" not in frame:
        return {}
    rows = _rows(frame.query("panel == panel").sort_values("panel", kind="stable"))
    by_model: dict[str, list[ContentMap]] = {model: [] for model in frame.index.unique("model")}
    called = {row["model"]: row["called"] for row in rows}
    for row in rows:
        title = f"layer {row['layer']:.0f}, head {row['head']:.0f}, R² = {row['r2']:.2f}"
        by_model[row["model"]].append(ContentMap(title, row["matrix"]))
    order = [model for paper in (*FIGURES["fig5"], "") for model in by_model if called.get(model) == paper]
    return {model: by_model[model] for model in order or by_model if by_model[model]}


# --- the studies -------------------------------------------------------------------------------------------


def _measured(frame: "pd.DataFrame", source: str = "measured") -> list[str]:
    """The models whose rows are from this source."""
    return [*frame.query(f"source == '{source}'").index.unique("model")]


def _stand_in(frame: "pd.DataFrame") -> str:
    """Which models stand in for the paper's."""
    return stand_in(_measured(frame), _measured(frame, "files"))


def judge_extended(study: Study, frame: "pd.DataFrame") -> Iterator[Judged]:
    """The claims of a study judged on what is of the paper's models; on other models, as claims of ours.

    A claim of the paper of which only the second is known is left open, saying so.
    """
    own, others = frame.query("own == 1"), frame.query("own == 0")
    caveat = _stand_in(frame) or ("" if others.empty else "other models or texts than the paper's too")
    for claim in study.claims:
        about_models = claim.strength != "printed" and not isinstance(claim.quantity, AtHand)
        if not caveat or claim.provenance == "ours" or not about_models:
            yield from judge_each([claim], frame)
            continue
        ours = replace(claim, id=f"{claim.id}{ELSEWHERE}", provenance="ours", scope=HERE, alias_of="")
        extended, decided = [*judge_each([ours], others)], [*judge_each([claim], own)]
        seen = [f"measured on these, see {ours.id}"] if extended else []
        reason = "; ".join([caveat, *seen, study.decided_by])
        if extended and not decided:
            decided = [undecided(claim, reason, "")]
        for verdict in decided:
            left_open = verdict.evidence and verdict.verdict == "undecided"
            yield replace(verdict, why=f"{verdict.why}; {reason}") if left_open else verdict
        yield from extended


def _json(frame: "pd.DataFrame") -> dict[str, Any]:
    """The rows for JSON, but for single positions and objects; with the models that were measured."""
    rows = [
        row
        for row in _rows(frame.drop(columns=[*OBJECTS], errors="ignore"))
        if math.isnan(row.get("position", math.nan))
    ]
    kept = [{name: value for name, value in row.items() if value == value} for row in rows]
    return {"measured": _measured(frame), "stand_in": _stand_in(frame), "rows": kept}


NOTES = {
    "spearman": f"Against the measured influence, higher is better. {NOISE_NOTE}",
    "wasserstein": f"Against the measured influence, on positions over n − 1, lower is better. {NOISE_NOTE}",
    "similarity": "Shannon similarity (Eq. 9) of mean content logits, in {bins} bins over {span}; with it that "
    "of normal numbers of the same mean and deviation. Errors are over heads.",
    "schedules": "λ by layer ({mixing}), mean over prompts with its 95 % interval.",
    "curves": "Influence on the last token, relative to uniform. What the paper says of its models is judged with "
    "Figure 2, for those of both figures.",
    "content": "Mean content logits in softmax units; colours end at the 1 and 99 % percentiles.",
    "order": "Triples (i < i′, k) whose later row holds more of the prefix 0 … k (Assumption 4.1); the noise "
    "floor is what sampling noise would give were the true kernels monotone.",
}
"""What the numbers of each kind are."""
READ = {
    "corrected": {"span": "each head's own range", "mixing": "Frobenius norms, Eq. (1)"},
    "published": {"span": "the range of all heads together", "mixing": "mean over tokens"},
}
"""What a reading means for them."""


def _note(frame: "pd.DataFrame", kind: str) -> str:
    """What the numbers rest on, and which models stand in."""
    about = {"reading": "corrected", **frame.attrs}
    parts = [about["note"], NOTES.get(kind, "").format(bins=about["bins"], **READ[about["reading"]])]
    if "remarks" in frame:
        rows = _rows(frame.query("remarks == remarks"))
        parts += dict.fromkeys(f"{row['model']}: {row['remarks']}." for row in rows)
    caveat = _stand_in(frame)
    return " ".join(part for part in [*parts, f"Here {caveat}." if caveat else ""] if part)


LACKING = {
    "table6": "no measurement with mean content matrices",
    "fig1": "nothing measured",
    "fig2": "no model that adds a line by distance to its logits, and no rollout files",
    "fig3": "every model adds a line by distance to its logits (see fig2)",
    "fig4": "one corpus only",
    "fig5": "no mean content matrices of layers and heads that were chosen",
    "section4": "no averaged attention",
}
"""Why there is nothing to show of a study; of others there always is what the paper prints."""


def missing(frame: "pd.DataFrame", name: str) -> str:
    """Why there is nothing to show; "" if there is."""
    match name:
        case "fig2" | "fig3":
            shown = shown_models(frame, name)
        case "fig4":
            shown = [*frame.query("source == 'measured' and place > 0").index]
        case "fig5":
            shown = content_maps(frame)
        case _:
            shown = _measured(frame)
    return "" if shown else LACKING.get(name, "")


def _page(frame: "pd.DataFrame", *, name: str, kind: str) -> Page:
    return Page(note=_note(frame, kind), tables=tuple(SHOWN[kind][0](frame, name=name)), data=_json(frame))


def _study(name: str, kind: str, title: str, question: str) -> Study:
    """A study of this paper: what is measured is asked for at each run, and judged on the table of its `kind`."""
    draw = SHOWN[kind][1]
    levels = kind in ("curves", "spearman", "wasserstein")
    texts = "FineWeb-Edu, DCLM-Baseline, Wikipedia" if kind == "order" else "FineWeb-Edu"
    also = (
        "; the authors' rollout files decide some too, --configs" if kind in ("curves", "schedules") else ""
    )
    options: dict[str, Any] = {"minutes": (3, 35), "count": 2, "recorded": partial(_recorded, kind=kind)}
    options["decided_by"] = decided_by(name, PLOTTED if kind == "schedules" else TOKENS, texts) + also
    return Study(
        f"herasimchyk2026/{name}",
        title,
        question,
        tuple(_at_hand(claim, kind) for claim in CLAIMS.get(name, ())),
        (),
        unit="prompts",
        table=partial(table, kind),
        page=partial(_page, name=name, kind=kind),
        draw=draw and partial(draw, name=name),
        judge=judge_extended,
        needs="models",
        uses=(*SOURCES, *(INFLUENCE if levels else ())),
        **options | OPTIONS.get(name, {}),
    )


def _recorded(study: Study, kind: str) -> Recorded:
    basis = Basis(cells=2, recorded=2)
    return Recorded(f"quick: {ON_RECORD}", basis, ("quick",), lambda: recorded(kind), WHEN)


SHOWN: "dict[str, tuple[Callable[..., Iterable[Table]], Callable[..., Figure] | None]]" = {
    "sizes": (_size_tables, None),
    "spearman": (_score_tables, None),
    "wasserstein": (_score_tables, None),
    "similarity": (_similarity_tables, None),
    "order": (_order_tables, None),
    "schedules": (_mixing_tables, draw_schedules),
    "curves": (_curve_tables, draw_curves),
    "content": (lambda frame, name: (), draw_content),
}
"""The tables of a page of each kind, and its drawing."""
OPTIONS: dict[str, dict[str, Any]] = {
    "table1": {"minutes": (0.1, 0.1)},
    "fig1": {"minutes": (7.5, 160), "count": 5},
    "fig4": {"minutes": (0.5, 10), "count": 4, "recorded": lambda study: None},  # one text is on record
}
TITLES = {
    "table1": ("sizes", "Models: parameters and depth", "What are the models that are compared?"),
    "table2": (
        "spearman",
        "Spearman correlation of levels (a) to (c) with the measured influence, two models",
        "Does the residual connection make the rollout rank positions as the model does?",
    ),
    "table3": (
        "wasserstein",
        "Wasserstein distance of levels (a) to (c) from the measured influence, two models",
        "Does the residual connection bring the rollout near the measured influence?",
    ),
    "table4": (
        "spearman",
        "Spearman correlation for every model and text",
        "Is residual-aware better than attention-only on every text, and is constant content better still?",
    ),
    "table5": (
        "wasserstein",
        "Wasserstein distance for every model and text",
        "Is residual-aware nearer than attention-only on every text, and is constant content nearer still?",
    ),
    "table6": (
        "similarity",
        "Homogeneity of mean content logits on and below the diagonal",
        "Are mean content logits a constant with another one on the diagonal?",
    ),
    "fig1": (
        "schedules",
        "λ by layer at several lengths",
        "Does the weight of attention against the residual stream fall with depth?",
    ),
    "fig2": (
        "curves",
        "Levels (a) to (c) and measured influence of models with linear biases",
        "Does attention-only rollout collapse on the first token, and do residual connections make it a U?",
    ),
    "fig3": (
        "curves",
        "The same for further models",
        "Is the measured influence U-shaped, and its minimum where the rollout has it?",
    ),
    "fig4": ("schedules", "λ by layer on further texts", "Is the schedule of λ the same on every text?"),
    "fig5": (
        "content",
        "Mean content logits, head by head",
        "Do heads shift the diagonal all the same way, and is the rest constant?",
    ),
    "section4": (
        "order",
        "Violations of stochastic monotonicity (Assumption 4.1)",
        "Is averaged attention stochastically monotone, up to a part in a million of all triples?",
    ),
}
"""The kind of table that each is of, what it shows, and the question it answers."""
STUDIES = Studies(_study(name, *about) for name, about in TITLES.items())
"""Tables, figures and the check of Section 4, in the order of the text."""
