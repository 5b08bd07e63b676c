"""Tables 1 to 6, Figures 1 to 5 and Section 4 of Herasimchyk et al. 2026, each a function of a tidy table.

The paper's models are in the figure that the paper has them in, from top to bottom; of all others, Figure 2 has
those that add a line by distance to their logits (ALiBi), Figure 3 the rest. Figure 1 is of each model's first
corpus, Figure 4 of all others; Tables 2 and 3 show the first corpus, Tables 4 and 5 all of them. What contrasts in
`claims.csv` cannot say are the functions of `FUNCTIONS`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from posbias.profiles.claims import ELSEWHERE, Claim, Evidence, Judged, Near, Printed, undecided
from posbias.profiles.estimate import Estimate
from posbias.reports.plots.style import INK, TEXT
from posbias_papers.contrasts import AtHand, read_claims
from posbias_papers.herasimchyk2026.configs import FIGURES, HUB, PROMPTS, stand_in
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
KNOWN = 0.05
"""A number whose standard error is larger does not confirm a printed one."""
LEVEL = 0.05
"""How often a row of true numbers may be found wrong."""
CONFIGURED = "the configurations on the hub"
"""What claims about rows of configurations rest on, which need nothing measured."""
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


def printed_row(rows: "pd.DataFrame") -> Iterator[Evidence]:
    """Every number of a printed row that was measured here, against the printed one; if none was, what would.

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
    if not ours:
        model, name = rows.reset_index()[["model", "table"]].dropna().iloc[0]
        yield Evidence(model, flaw=f"{model} was not measured here, {decided_by(name, [model])}")


FUNCTIONS = {one.__name__: one for one in (near_printed, printed_row)}
CLAIMS = read_claims(Path(__file__).with_name("claims.csv"), FUNCTIONS)


def decided_by(study: str, models: "list[str] | None" = None) -> str:
    """What would decide a claim about the paper's models: a command."""
    sources = ",".join(HUB[model].source for model in models or HUB)
    return (
        f"decided by {PROMPTS:,} prompts of the paper's texts: `posbias paper herasimchyk2026 {study} --models "
        f"{sources} --corpora TEXT --effort full`"
    )


def _rows(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    return frame.reset_index().to_dict("records")


def _at_hand(claim: Claim, kind: str) -> Claim:
    """A claim about configurations, which is decided before anything is measured."""
    quantity: Any = claim.quantity
    if "source == 'configuration'" not in quantity.where:
        return claim
    return replace(claim, quantity=AtHand(lambda: quantity(recorded(kind)), CONFIGURED, quantity))


# --- tables of a page --------------------------------------------------------------------------------------

ORDER = {
    "violating triples": "rate",
    "noise floor": "floor",
    "mean gap of those": "gap",
    "worst layer": "worst",
}
MIXING = {"tokens": "tokens", "prompts": "n", "λ of layer 0": "bottom", "of the last": "top", "fall": "fall"}
SHAPE = {"curve": "curve", "token 0": "first_token", "first 5 %": "first", "last 5 %": "last"}
SHAPE |= {"last 10 %": "last_tenth", "trough at": "trough", "verdict": "verdict"}
NAMES = {letter: f"({letter})" for letter in "abcd"} | NOISE


def listing(caption: str, frame: "pd.DataFrame", columns: Mapping[str, str]) -> Iterator[Table]:
    """The rows of a frame, if there are any: by the head of a column, its name."""
    columns = {"model": "model", "corpus": "corpus", **columns}
    rows = [{head: _value(row, name) for head, name in columns.items()} for row in _rows(frame)]
    if rows:
        yield Table.of(caption, rows)


def crossed(caption: str, frame: "pd.DataFrame", column: str) -> Iterator[Table]:
    """A row for each model, a column for each text and each `what`, if there are any."""
    models: dict[str, dict[str, Any]] = {}
    for row in _rows(frame):
        head = f"{row['corpus']} {NAMES.get(row['what'], row['what'])}".strip()
        models.setdefault(row["model"], {"model": row["model"]})[head] = _value(row, column)
    if models:
        yield Table.of(caption, models.values())


def _value(row: Mapping[str, Any], name: str) -> Any:
    """A number of a row, with its standard error, or its interval, where it has one; a printed one as it is."""
    value, se, n, low = row[name], *(row.get(key, math.nan) for key in (f"{name}_se", "n", "low"))
    if name == "value" and math.isnan(se) and low == low:
        return f"{value:.3f} [{low:.3f}, {row['high']:.3f}]".replace("-", "−")
    if isinstance(value, str) or name == "printed" or not se or math.isnan(se):
        return value
    return Estimate(value, se, int(n) if n == n else None)


def _tables(frame: "pd.DataFrame", name: str, kind: str) -> Iterator[Table]:
    measured, printed = (frame.query(f"source == '{source}'") for source in ("measured", "printed"))
    match kind:
        case "order":
            yield from listing("Measured here", measured, ORDER)
            yield from listing("Printed in the paper (at most, about)", printed, ORDER)
        case "schedules":
            place = "place > 0" if name == "fig4" else "place == 0"
            rows = measured.query(f"{place} and bottom == bottom")
            yield from listing("λ, mean ± standard error over prompts", rows, MIXING)
        case "curves":
            rows = frame.query(f"first_token == first_token and model in {shown_models(frame, name)}")
            yield from listing("Shape of every curve (shares of all influence)", rows, SHAPE)
        case "sizes" | "spearman" | "wasserstein" | "similarity":
            if name in ("table2", "table3"):
                measured = measured.query("place == 0")
                printed = printed.query(f"model in {FIGURES['fig2']} and text == 'FineWeb-Edu'")
            yield from crossed("Measured here", measured, "value")
            if kind == "similarity":
                yield from crossed("Normal numbers of the same mean and deviation", measured, "null")
            yield from crossed("Printed in the paper", printed, "printed")
            yield from crossed("Configurations on the hub", frame.query("source == 'configuration'"), "value")


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
    """Draw a row per model: heads from the worst to the best described by constant and diagonal."""
    maps = [*content_maps(frame).items()]
    figure, part = captioned_figure(*content_size(maps), caption)
    draw_content_rows(part, maps)
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


def _measured(frame: "pd.DataFrame") -> list[str]:
    """The models that were measured."""
    return [*frame.query("source == 'measured'").index.unique("model")]


def judge_extended(study: Study, frame: "pd.DataFrame") -> Iterator[Judged]:
    """The claims of a study judged on what is of the paper's models; on other models, as claims of ours.

    A claim of the paper of which only the second is known is left open, with the reason.
    """
    own, others = frame.query("own == 1"), frame.query("own == 0")
    for claim in study.claims:
        about_models = claim.strength != "printed" and not isinstance(claim.quantity, AtHand)
        if claim.provenance == "ours" or not about_models:
            yield from judge_each([claim], frame)
            continue
        ours = replace(claim, id=f"{claim.id}{ELSEWHERE}", provenance="ours", scope=HERE, alias_of="")
        extended, decided = [*judge_each([ours], others)], [*judge_each([claim], own)]
        seen = [f"measured on other models, see {ours.id}"] if extended else []
        reason = "; ".join([*seen, study.decided_by])
        if extended and not decided:
            decided = [undecided(claim, reason, "")]
        for verdict in decided:
            left_open = verdict.evidence and verdict.verdict == "undecided"
            yield replace(verdict, why=f"{verdict.why}; {reason}") if left_open else verdict
        yield from extended


def _json(frame: "pd.DataFrame") -> dict[str, Any]:
    """The rows for JSON, but for single positions and objects; with the models that were measured."""
    whole = [
        row
        for row in _rows(frame.drop(columns=[*OBJECTS], errors="ignore"))
        if math.isnan(row.get("position", math.nan))
    ]
    rows = [{name: value for name, value in row.items() if value == value} for row in whole]
    return {"measured": _measured(frame), "stand_in": stand_in(_measured(frame)), "rows": rows}


NOISE_NOTE = (
    "Split-half: one half of the prompts against the other; second measurement: these against as many others, and "
    "noise ceiling: a noiseless predictor against these, both inferred (posbias.comparison.agreement)."
)
NOTES = {
    "sizes": "",
    "spearman": f"Against the measured influence, higher is better. {NOISE_NOTE}",
    "wasserstein": f"Against the measured influence, on positions over n − 1, lower is better. {NOISE_NOTE}",
    "similarity": "Shannon similarity (Eq. 9) of mean content logits in {bins} bins. Errors are over heads.",
    "schedules": "λ by layer, mean over prompts with its 95 % interval.",
    "curves": "Influence relative to uniform. Claims about models of Figures 2 and 3 are judged with Figure 2.",
    "content": "Mean content logits in softmax units; colours end at the 1 and 99 % percentiles.",
    "order": "Triples (i < i′, k) whose later row holds more of the prefix 0 … k (Assumption 4.1); the noise "
    "floor is what sampling noise would give were the true kernels monotone.",
}
"""What the numbers of each kind are."""


def _note(frame: "pd.DataFrame", kind: str) -> str:
    """What the numbers rest on, and which models stand in."""
    words = NOTES[kind].format(bins=frame.attrs["bins"])
    return " ".join(part for part in (frame.attrs["note"], words, stand_in(_measured(frame))) if part)


LACKING = {
    "table6": "no measurement with mean content matrices",
    "fig1": "nothing measured",
    "fig2": "no model that adds a line by distance to its logits, and no rollout files",
    "fig3": "every model adds a line by distance to its logits (see fig2)",
    "fig4": "one corpus only",
    "fig5": "no mean content matrices",
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
    return Page(note=_note(frame, kind), tables=tuple(_tables(frame, name, kind)), data=_json(frame))


def _study(name: str, kind: str, title: str, question: str) -> Study:
    """A study of this paper: what is measured is asked for at each run, and judged on the table of its `kind`."""
    on_record = Recorded(
        f"quick: {ON_RECORD}", Basis(cells=2, recorded=2), ("quick",), partial(recorded, kind), WHEN
    )
    options: dict[str, Any] = {"minutes": (3, 35), "count": 2, "recorded": lambda study: on_record}
    draw = DRAWN.get(kind)
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
        uses=(*SOURCES, *(INFLUENCE if kind in ("curves", "spearman", "wasserstein") else ())),
        decided_by=decided_by(name),
        **options | OPTIONS.get(name, {}),
    )


DRAWN: "dict[str, Callable[..., Figure]]" = {
    "schedules": draw_schedules,
    "curves": draw_curves,
    "content": draw_content,
}
"""The drawing of each kind that has one."""
OPTIONS: dict[str, dict[str, Any]] = {
    "table1": {"minutes": (0.1, 0.1)},
    "fig1": {"minutes": (7.5, 160), "count": 5},
    "fig4": {"minutes": (0.5, 10), "count": 4, "recorded": lambda study: None},  # one text is on record
}
U_QUESTION = (
    "Does attention-only rollout collapse on the first token, and do residual connections make it a U?"
)
TITLES = (
    ("table1", "sizes", "Models: parameters and depth", "What are the models that are compared?"),
    ("table2", "spearman", "Spearman of (a) to (c), two models", "Does the residual help to rank positions?"),
    ("table3", "wasserstein", "Wasserstein of (a) to (c), two models", "Does the residual bring it nearer?"),
    ("table4", "spearman", "Spearman for every model and text", "Is (b) better than (a), and (c) than (b)?"),
    (
        "table5",
        "wasserstein",
        "Wasserstein for every model and text",
        "Is (b) nearer than (a), and (c) than (b)?",
    ),
    ("table6", "similarity", "Homogeneity of mean content logits", "Is content a constant and a diagonal?"),
    ("fig1", "schedules", "λ by layer at several lengths", "Does the weight of attention fall with depth?"),
    ("fig2", "curves", "Levels and measured influence, models with linear biases", U_QUESTION),
    ("fig3", "curves", "The same for further models", "Is the measured influence a U, lowest where (b) is?"),
    ("fig4", "schedules", "λ by layer on further texts", "Is the schedule of λ the same on every text?"),
    ("fig5", "content", "Mean content logits, head by head", "Do heads shift the diagonal all the same way?"),
    (
        "section4",
        "order",
        "Violations of stochastic monotonicity",
        "Is averaged attention stochastically monotone?",
    ),
)
"""By name: the kind of table that each is of, its title, and the question it answers."""
STUDIES = Studies(_study(*about) for about in TITLES)
"""Tables, figures and the check of Section 4, in the order of the text."""
