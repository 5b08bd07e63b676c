"""The rows of the tables that Herasimchyk et al. 2026 print, each held against the same row here.

A row is one model of the paper. Table 1 is held against the model's public configuration (`posbias presets`).
Tables 2 to 6 need the model itself on the paper's text: where the table here was made with it (`--models`,
`--corpora`), its numbers are compared, printed ± half of the last digit with ours ± the 95 % interval over
prompts; otherwise the row is undecided.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy import stats

from posbias.claims import Claim, Judged, Verdict
from posbias.estimate import Estimate
from posbias.papers.expected import ROUNDING
from posbias.papers.registry import PaperStudy

KNOWN = 0.05
"""A number whose standard error is larger does not confirm a printed one."""

TABLES = ("table1", "table2", "table3", "table4", "table5", "table6")
SIGNS = {"FineWeb-Edu": "fineweb", "DCLM-Baseline": "dclm", "Wikipedia": "wiki"}
"""What the name of a text has in it that stands for a corpus of the paper."""


def row_claims(study: PaperStudy, data: Mapping[str, Any] | None, trouble: str) -> Iterator[Judged]:
    """A claim for every row that the paper prints in this study's table; none for what is no table.

    `data` is the table's JSON, or None where there is none for the reason `trouble`.
    """
    if study.paper != "herasimchyk2026" or study.name not in TABLES:
        return
    from posbias.papers.herasimchyk2026.printed import FEATURED, TABLE1

    for model in FEATURED if study.name in ("table2", "table3") else TABLE1:
        if study.name == "table1":
            claim, number, se, verdict, why = _depth(model)
        else:
            claim = f"{_title(study)}, row {model}: {_printed(study.name, model)}"
            ours = _ours(study.name, model, data or {})
            number, se, verdict, why = _compared(ours) if ours else (math.nan, math.nan, "undecided", "")
            if not ours:
                why = _missing(study, model, trouble if data is None else "")
        key = f"{study.key}/{model}"
        yield Judged(
            Claim(key, "", claim, strength="printed"),
            (),
            verdict,
            Estimate(number, se),
            why,
            study.key,
            {"model": model},
        )


def _title(study: PaperStudy) -> str:
    return f"Table {study.name.removeprefix('table')}"


def _depth(model: str) -> tuple[str, float, float, Verdict, str]:
    """Table 1 against the configuration that the model's makers publish."""
    from posbias.papers.herasimchyk2026.printed import HUB, TABLE1
    from posbias.theory.presets import PRESETS

    size, depth = TABLE1[model]
    known = PRESETS[HUB[model].preset]
    verdict = "holds" if known.depth == depth else "fails"
    claim = f"Table 1, row {model}: {depth} layers"
    counted = f"{known.depth} layers in the configuration of {known.source}"
    why = f"{counted}; the {size:g} billion parameters were not counted here"
    return claim, float(known.depth), 0.0, verdict, why


def _printed(table: str, model: str) -> str:
    """The row in words."""
    from posbias.papers.herasimchyk2026.printed import TABLE6

    if table == "table6":
        parts = zip(("on the diagonal", "below it"), TABLE6[model], strict=True)
        words = ", ".join(f"{mean:.2f} ± {spread:.2f} {region}" for region, (mean, spread) in parts)
        return f"similarity {words}"
    score = "Spearman" if table in ("table2", "table4") else "Wasserstein"
    rows = (
        f"{' / '.join(f'{value:.2f}'.replace('-', '−') for value in values)} on {corpus}"
        for corpus, values in _cells(table, model).items()
    )
    return f"{score} of (a) / (b) / (c) {', '.join(rows)}"


def _cells(table: str, model: str) -> dict[str, tuple[float, float, float]]:
    from posbias.papers.herasimchyk2026.printed import CORPORA, TABLE4, TABLE5

    rows = (TABLE4 if table in ("table2", "table4") else TABLE5)[model]
    return {corpus: rows[corpus] for corpus in (CORPORA[:1] if table in ("table2", "table3") else CORPORA)}


def _ours(table: str, model: str, data: Mapping[str, Any]) -> list[tuple[str, float, float, float]]:
    """(of what, printed, ours, se of ours) for every printed number that was measured here too."""
    from posbias.papers.herasimchyk2026.printed import LEVELS, TABLE6
    from posbias.papers.herasimchyk2026.standing import names_of, plain

    called, found = {*map(plain, names_of(model))}, []
    for row in data.get("rows", []):
        if plain(str(row.get("model", ""))) not in called:
            continue
        if table == "table6":
            for region, (mean, _) in zip(("diagonal", "below"), TABLE6[model], strict=True):
                values = np.asarray(row[region], dtype=np.float64).ravel()
                values = values[np.isfinite(values)]
                found.append(
                    (region, mean, float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size)))
                )
            continue
        for corpus, printed in _cells(table, model).items():
            if SIGNS[corpus] not in str(row["corpus"]).lower():
                continue
            for level, value in zip(LEVELS, printed, strict=True):
                ours = row["levels"].get(level) or {}
                if ours.get("value") is not None and ours.get("interval"):
                    low, high = ours["interval"]
                    found.append((f"({level}) on {corpus}", value, ours["value"], (high - low) / (2 * 1.96)))
    return found


def _compared(ours: list[tuple[str, float, float, float]]) -> tuple[float, float, Verdict, str]:
    """The number that is furthest off for its error, and whether all are within theirs."""

    # as many numbers are compared, so much further may the furthest be off by chance
    errors = float(stats.norm.isf(0.025 / len(ours)))

    def excess(one: tuple[str, float, float, float]) -> float:
        _, printed, value, se = one
        return (abs(value - printed) - ROUNDING) - errors * se

    what, printed, value, se = max(ours, key=excess)
    off = [one for one in ours if excess(one) > 0]
    vague = [one for one in ours if one[3] > KNOWN]
    told = f"{what}: printed {printed:.2f}, here {value:.3f} ± {se:.3f}".replace("-", "−")
    why = (
        f"{len(ours) - len(off)} of {len(ours)} numbers within rounding and the interval over prompts; {told}"
    )
    if vague and not off:
        return value - printed, se, "undecided", f"{why}; {len(vague)} known to no better than ± {KNOWN:g}"
    return value - printed, se, "fails" if off else "holds", why


def _missing(study: PaperStudy, model: str, trouble: str) -> str:
    from posbias.papers.herasimchyk2026.printed import HUB
    from posbias.theory.presets import PRESETS

    source = PRESETS[HUB[model].preset].source
    why = (
        f"needs {model} itself ({source}) on the paper's texts; `posbias paper herasimchyk2026 {study.name} "
        f"--models {source} --corpora …` measures it, the authors' rollout files hold no measured influence"
    )
    return f"{why}; {trouble}" if trouble else why
