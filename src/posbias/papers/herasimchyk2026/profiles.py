"""Figures 2 and 3: influence on the last token by level and as measured, a row per model; claims, shapes, drawing.

A rollout has no error of its own: what is said of one alone holds or does not. Densities are relative to uniform.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.claims import LEAST, Claim, Evidence, Near, signed_text
from posbias.estimate import Estimate
from posbias.papers.herasimchyk2026.measurements import Measurements, study_of
from posbias.papers.study import Study
from posbias.plots.captions import captioned_figure, settle
from posbias.plots.levels import draw_levels, levels_size
from posbias.profile import RISE, Profile
from posbias.reports.pages import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posbias.papers.herasimchyk2026.levels import Curves

UNMEASURED = "influence was not measured here"
HEAD = ("model", "corpus", "curve", "token 0", "first 5 %", "last 5 %", "last 10 %", "trough at", "verdict")
Shown = Callable[[Measurements], "Sequence[Curves]"]


def profile_study(name: str, title: str, question: str, shown: Shown, lacking: str) -> Study:
    """The study of one of Figures 2 and 3, of the curves `shown`; `lacking` says why there may be none."""
    return study_of(
        name,
        title,
        question,
        _claims(name, shown),
        lambda results: _tables(shown(results)),
        lambda results: _data(shown(results)),
        lambda results: _note(results, shown(results)),
        draw=drawing(shown),
        missing=lambda results: "" if shown(results) else lacking,
    )


# --- claims ------------------------------------------------------------------------------------------------


def _claims(name: str, shown: Shown) -> Iterator[Claim]:
    """What levels and measured curves are said to look like."""

    def of_all(evidence: "Callable[[Curves], Iterable[Evidence]]") -> Callable[[Measurements], Any]:
        return lambda results: [piece for curves in shown(results) for piece in evidence(curves)]

    def of_content(evidence: "Callable[[Curves], Iterable[Evidence]]") -> Callable[[Measurements], Any]:
        return of_all(lambda curves: evidence(curves) if "c" in curves.levels else ())

    yield Claim(
        f"herasimchyk2026/{name}/1",
        "Section 6.2",
        "(a) Attention-only rollout collapses onto the first token (more than half of the mass)",
        of_all(lambda curves: [Evidence(curves.name, Estimate(float(curves.levels["a"].mass[0]) - 0.5))]),
    )
    yield Claim(
        f"herasimchyk2026/{name}/2",
        "Section 6.2",
        "(b) Residual-aware rollout is U-shaped: both ends are denser than 1.25 times the trough",
        of_all(lambda curves: _ends(curves.name, curves.levels["b"])),
    )
    yield Claim(
        f"herasimchyk2026/{name}/3",
        "Section 6.2",
        "(c) Constant content shifts mass toward later positions (mean position, share of the text)",
        of_content(_shift),
    )
    yield Claim(
        f"herasimchyk2026/{name}/4",
        "Section 6.2",
        "… and lowers the primacy peak (density of the first 5 %)",
        of_content(_first),
    )
    yield Claim(
        f"herasimchyk2026/{name}/5",
        "Section 6.2",
        "… and keeps the U",
        of_content(lambda curves: _ends(curves.name, curves.levels["c"])),
    )
    yield Claim(
        f"herasimchyk2026/{name}/6",
        "Section 6.3",
        "(measured) Influence is U-shaped",
        of_all(_measured_ends),
    )
    yield Claim(
        f"herasimchyk2026/{name}/7",
        "Section 6.3",
        "The minimum of (b) lies where that of the measured influence does (share of the text)",
        lambda results: [_minimum(results, curves) for curves in shown(results)],
        Near(),
    )


def _ends(where: str, profile: Profile) -> Iterator[Evidence]:
    """That a rollout's first and last 5 % exceed its trough by `RISE`."""
    s = profile.summary
    least = RISE * profile.trough_share.value * s.tokens / s.ends
    for name, density in (("first", s.ratio[0]), ("last", s.ratio[2])):
        yield of_prompts(f"{where}, {name}", density - least)


def _measured_ends(curves: "Curves") -> Iterator[Evidence]:
    measured, ends = curves.measured, ("first", "last")
    if measured is None:
        yield from (Evidence(f"{curves.name}, {name}", flaw=UNMEASURED) for name in ends)
        return
    tokens, width = measured.tokens, measured.summary.ends
    least, even = measured.trough_share, width / tokens
    shares = (measured.share(0, width), measured.share(tokens - width, tokens))
    for name, share in zip(ends, shares, strict=True):
        value = (share.value - RISE * least.value) / even
        se = math.hypot(share.se, RISE * least.se) / even
        yield Evidence(f"{curves.name}, {name}", Estimate(value, se, share.n))


def of_prompts(where: str, value: float) -> Evidence:
    """An effect of levels with measured λ and content, whose error over prompts is not computed.

    It says nothing where it is smaller than the least that counts.
    """
    if abs(value) < LEAST:
        return Evidence(where, flaw=f"{signed_text(value)}, too near the bound without an error over prompts")
    return Evidence(where, Estimate(value))


def _shift(curves: "Curves") -> Iterator[Evidence]:
    place = np.linspace(0.0, 1.0, curves.levels["b"].tokens)
    yield of_prompts(curves.name, float((curves.levels["c"].mass - curves.levels["b"].mass) @ place))


def _first(curves: "Curves") -> Iterator[Evidence]:
    before, after = (curves.levels[letter].summary.ratio[0] for letter in "bc")
    yield of_prompts(curves.name, before - after)


def _minimum(results: Measurements, curves: "Curves") -> Evidence:
    from posbias.papers.herasimchyk2026.agreement import Agreement

    if curves.measured is None:
        return Evidence(curves.name, flaw=UNMEASURED)
    return Agreement(curves, results.seed).minimum(curves.name, "b")


# --- numbers and pictures ----------------------------------------------------------------------------------


def _note(results: Measurements, shown: "Sequence[Curves]") -> str:
    remarks = dict.fromkeys(f"{curves.model}: {remark}." for curves in shown for remark in curves.remarks)
    return " ".join([f"{results.note} Influence on the last token, relative to uniform.", *remarks])


def _tables(shown: "Sequence[Curves]") -> Iterator[Table]:
    """Every curve's ends and trough."""
    rows = []
    for one in shown:
        curves = {f"({letter})": profile for letter, profile in one.levels.items()}
        curves |= {} if one.measured is None else {"measured": one.measured}
        for name, profile in curves.items():
            s, mass = profile.summary, np.asarray(profile.mass)
            tenth = mass[-round(0.1 * mass.size) :].sum()
            shares = (mass[0], s.first_mass, s.last_mass, tenth)
            shape = [str(s.trough), str(s.verdict)]
            rows.append([one.model, one.corpus, name, *(f"{share:.3f}" for share in shares), *shape])
    yield Table("Shape of every curve (shares of all influence)", HEAD, rows)


def _data(shown: "Sequence[Curves]") -> dict[str, Any]:
    """The curves, every number in full."""
    return {
        "curves": [
            {
                "model": curves.model,
                "corpus": curves.corpus,
                "additive": curves.additive,
                "remarks": list(curves.remarks),
                "levels": {letter: profile.mass for letter, profile in curves.levels.items()},
                "measured": None if curves.measured is None else curves.measured.mass,
                "measured_se": None if curves.measured is None else curves.measured.se,
            }
            for curves in shown
        ]
    }


def drawing(shown: Shown) -> "Callable[[Measurements, Sequence[tuple[str, str]]], Figure]":
    """The `draw` of a figure of these curves: a row per model, a column per level, and the measured influence."""

    def draw(results: Measurements, caption: Sequence[tuple[str, str]]) -> "Figure":
        rows = [(curves.model, curves.levels, curves.measured) for curves in shown(results)]
        figure, part = captioned_figure(*levels_size(rows), caption)
        draw_levels(part, rows)
        return settle(figure)

    return draw
