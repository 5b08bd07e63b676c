"""Figures 2 and 3: influence on the last token by level and as measured, a row per model; claims, shapes, drawing.

The paper's models are in the figure that the paper has them in, from top to bottom; of all others, Figure 2 has
those that add a line by distance to their logits (ALiBi), Figure 3 the rest. The claims of Figure 2 are about all
models that add such a line, whichever figure shows them. A rollout has no error of its own: what is said of one
alone holds or does not. Densities are relative to uniform.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import LEAST, Above, Evidence, Near, share, signed_text
from posbias.profiles.summary import RISE
from posbias.theory.configs import preset
from posbias.theory.mixing import AttentionOnly
from posbias.theory.positional import ALiBi
from posbias_papers.claims import AtHand, Maker, Quantity, claims_of
from posbias_papers.herasimchyk2026 import before_training, splits
from posbias_papers.herasimchyk2026.curves import Curves
from posbias_papers.herasimchyk2026.levels import profile_of, published_slopes
from posbias_papers.herasimchyk2026.measurements import LEVELS, Measurements, study_of
from posbias_papers.herasimchyk2026.printed import FIGURES, HUB, TOKENS
from posbias_papers.herasimchyk2026.standing import EFFORT, OURS, SCOPE, decided_by, model_of
from posbias_papers.pages import Table
from posbias_papers.plots.captions import captioned_figure, settle
from posbias_papers.plots.levels import draw_levels, levels_size
from posbias_papers.study import ELSEWHERE, HERE, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNMEASURED = "influence was not measured here"
HEAD = ("model", "corpus", "curve", "token 0", "first 5 %", "last 5 %", "last 10 %", "trough at", "verdict")
Shown = Callable[[Measurements], Sequence[Curves]]


def _study(name: str, title: str, question: str, about: Shown, lacking: str) -> Study:
    """The study of one of Figures 2 and 3, with claims `about` some curves; `lacking` says why none is shown."""
    more = before_training if name == "fig2" else splits

    def shown(results: Measurements) -> Sequence[Curves]:
        return _figure(name, results) or about(results)

    return study_of(
        name,
        title,
        question,
        (*_claims(name, about), *more.CLAIMS),
        lambda results: [_table(shown(results)), *more.table(results)],
        lambda results: ({"curves": [_data(curves) for curves in shown(results)], **more.data(results)}),
        lambda results: _note(results, shown(results)),
        LEVELS,
        draw=lambda results, caption: _draw(shown(results), caption),
        missing=lambda results: "" if shown(results) else lacking,
        decided_by=f"{decided_by(name, TOKENS)}; levels are decided by the authors' rollout files too, --configs",
    )


def _claims(name: str, shown: Shown) -> Iterator[Claim]:
    """What levels and measured curves are said to look like; of other encodings the paper says nothing."""
    length = f"{TOKENS} tokens, as in the authors' rollout files (the paper prints no length)"
    about = {"scope": f"{SCOPE}, FineWeb-Edu, {length}", "effort": EFFORT}
    if name == "fig3":
        about = OURS
    claim = claims_of(f"herasimchyk2026/{name}", "Section 6.2, Figures 2 and 3", **about)
    influence = "Section 6.3, Appendix B.1"

    def each(of: Callable[[Curves], Iterable[Evidence]]) -> Callable[[Measurements], list[Evidence]]:
        return lambda results: [piece for curves in shown(results) for piece in of(curves)]

    def often(results: Measurements) -> list[Evidence]:
        near = [piece.tested(Near()) for piece in each(_minimum)(results)]
        return [share("models whose two minima are near", near)] if near else []

    collapses = "(a) Attention-only rollout collapses onto the first token (more than half of the mass)"
    yield from _collapses(claim, collapses, each(_collapse), name)
    u_shaped = "(b) Residual-aware rollout is U-shaped: both ends are denser than 1.25 times the trough"
    yield claim(2, u_shaped, each(lambda curves: _ends(curves, "b")))
    shifts = "(c) Constant content shifts mass toward later positions (mean position, share of the text)"
    yield claim(3, shifts, each(_shift))
    yield claim(4, "(c) Constant content lowers the primacy peak (density of the first 5 %)", each(_first))
    yield claim(5, "(c) Constant content keeps the overall U shape", each(lambda curves: _ends(curves, "c")))
    yield claim(
        6, "(measured) Influence is U-shaped in all examined cases", each(_measured_ends), place=influence
    )
    minimum = "The minimum of (b) often closely coincides with the measured one (within .05 of the text)"
    yield claim(7, minimum, often, place="Section 6.3", strength="hedged")


def _collapses(claim: Maker, sentence: str, of_shown: Quantity, name: str) -> Iterator[Claim]:
    """The first claim: level (a) of the paper's models needs their configurations alone."""
    if name == "fig3":
        yield claim(1, sentence, of_shown)
        return
    of_paper = claim(1, sentence, AtHand(collapse_of_paper, "the models' configurations"))
    yield of_paper
    yield replace(
        of_paper,
        id=f"{of_paper.id}{ELSEWHERE}",
        quantity=lambda results: of_shown(results.parted[1]),
        provenance="ours",
        scope=HERE,
    )


@functools.cache
def collapse_of_paper(tokens: int = TOKENS) -> tuple[Evidence, ...]:
    """By how much the first token's mass in level (a) of each of the paper's models exceeds one half.

    Slopes are the model's own and, where these are others, those of the authors' files.
    """
    found: dict[str, Evidence] = {}
    for model, hub in HUB.items():
        own = replace(preset(hub.preset), mixing=AttentionOnly())
        (layer,) = own.layers
        files = replace(layer, positional=ALiBi(published_slopes(layer.heads)))
        by_slopes = {model: own, f"{model} with the files' slopes": replace(own, layers=(files,))}
        masses = {where: float(profile_of("a", one, tokens).mass[0]) for where, one in by_slopes.items()}
        same = len({f"{mass:.9f}" for mass in masses.values()}) == 1
        for where in [model] if same else masses:
            found[where] = Evidence(where, Estimate(masses[where] - 0.5))
    return tuple(found.values())


def _collapse(curves: Curves) -> Iterator[Evidence]:
    yield Evidence(curves.name, Estimate(float(curves.levels["a"].mass[0]) - 0.5))


def _ends(curves: Curves, letter: str) -> Iterator[Evidence]:
    """That a rollout's first and last 5 % exceed its trough by `RISE`."""
    if letter in curves.levels:
        profile = curves.levels[letter]
        s = profile.summary
        least = RISE * profile.trough_share.value * s.tokens / s.ends
        yield _of_levels(curves, s.ratio[0] - least, ", first")
        yield _of_levels(curves, s.ratio[2] - least, ", last")


def _measured_ends(curves: Curves) -> Iterator[Evidence]:
    measured, ends = curves.measured, ("first", "last")
    if measured is None:
        yield from (Evidence(f"{curves.name}, {name}", flaw=UNMEASURED) for name in ends)
        return
    tokens, width = measured.tokens, measured.summary.ends
    least, even = measured.trough_share, width / tokens
    shares = (measured.share(0, width), measured.share(tokens - width, tokens))
    for name, end in zip(ends, shares, strict=True):
        value = (end.value - RISE * least.value) / even
        se = math.hypot(end.se, RISE * least.se) / even
        yield Evidence(f"{curves.name}, {name}", Estimate(value, se, end.n))


def _of_levels(curves: Curves, value: float, end: str = "") -> Evidence:
    """An effect of levels; from the authors' files those are the paper's own, known as they are."""
    if curves.measured is None:
        return Evidence(f"{curves.name}{end}", Estimate(value), test=Above(least=0.0))
    return of_prompts(f"{curves.name}{end}", value)


def of_prompts(where: str, value: float) -> Evidence:
    """An effect of levels with measured λ and content, whose error over prompts is not computed.

    It says nothing where it is smaller than the least that counts.
    """
    if abs(value) < LEAST:
        return Evidence(where, flaw=f"{signed_text(value)}, too near the bound without an error over prompts")
    return Evidence(where, Estimate(value))


def _shift(curves: Curves) -> Iterator[Evidence]:
    if "c" in curves.levels:
        place = np.linspace(0.0, 1.0, curves.levels["b"].tokens)
        yield _of_levels(curves, float((curves.levels["c"].mass - curves.levels["b"].mass) @ place))


def _first(curves: Curves) -> Iterator[Evidence]:
    if "c" in curves.levels:
        before, after = (curves.levels[letter].summary.ratio[0] for letter in "bc")
        yield _of_levels(curves, before - after)


def _minimum(curves: Curves) -> Iterator[Evidence]:
    known = curves.measured is not None
    yield curves.minimum(curves.name, "b") if known else Evidence(curves.name, flaw=UNMEASURED)


def _note(results: Measurements, shown: Sequence[Curves]) -> str:
    remarks = dict.fromkeys(f"{curves.model}: {remark}." for curves in shown for remark in curves.remarks)
    about = f"{results.note} Influence on the last token, relative to uniform."
    if any(model_of(curves.model) in FIGURES["fig3"] for curves in shown):
        about += " What the paper says of its models is judged with Figure 2, for those of both figures."
    return " ".join([about, *remarks])


def _table(shown: Sequence[Curves]) -> Table:
    """Every curve's ends and trough."""
    rows = []
    for one in shown:
        curves = {f"({letter})": profile for letter, profile in one.levels.items()}
        curves |= {} if one.measured is None else {"measured": one.measured}
        for name, profile in curves.items():
            s, mass = profile.summary, profile.mass
            tenth = mass[-round(0.1 * mass.size) :].sum()
            shares = (mass[0], s.first_mass, s.last_mass, tenth)
            shape = [str(s.trough), str(s.verdict)]
            rows.append([one.model, one.corpus, name, *(f"{share:.3f}" for share in shares), *shape])
    return Table("Shape of every curve (shares of all influence)", HEAD, rows)


def _data(curves: Curves) -> dict[str, Any]:
    """The curves of a model, every number in full."""
    return {
        "model": curves.model,
        "corpus": curves.corpus,
        "additive": curves.additive,
        "remarks": list(curves.remarks),
        "levels": {letter: profile.mass for letter, profile in curves.levels.items()},
        "measured": None if curves.measured is None else curves.measured.mass,
        "measured_se": None if curves.measured is None else curves.measured.se,
    }


def _draw(shown: Sequence[Curves], caption: str) -> "Figure":
    """A row per model, a column per level, and the measured influence."""
    rows = [(curves.model, curves.levels, curves.measured) for curves in shown]
    figure, part = captioned_figure(*levels_size(rows), caption)
    draw_levels(part, rows)
    return settle(figure)


def _additive(results: Measurements) -> Sequence[Curves]:
    """Measured models, and those of the authors' files, each on its first corpus."""
    measured = [curves for key in results.leading if (curves := results.curves(key)).additive]
    from_files = {curves.model: curves for curves in reversed(results.from_files)}
    return [*measured, *(curves for curves in results.from_files if curves is from_files[curves.model])]


def _others(results: Measurements) -> Sequence[Curves]:
    return [curves for key in results.leading if not (curves := results.curves(key)).additive]


def _figure(name: str, results: Measurements) -> Sequence[Curves]:
    """The curves of one of Figures 2 and 3: the paper's models in its order, then others."""
    additive, others = _additive(results), _others(results)
    named = [(model_of(curves.model), curves) for curves in (*additive, *others)]
    own = [curves for model in FIGURES[name] for called, curves in named if called == model]
    return [*own, *(one for one in (additive if name == "fig2" else others) if model_of(one.model) is None)]


STUDIES = (
    _study(
        "fig2",
        "Levels (a) to (c) and measured influence of models with linear biases",
        "Does attention-only rollout collapse on the first token, and does the residual connection make it a U?",
        _additive,
        "no model that adds a line by distance to its logits, and no rollout files",
    ),
    _study(
        "fig3",
        "The same for further models",
        "Is the measured influence U-shaped, and its minimum where the rollout has it?",
        _others,
        "every model adds a line by distance to its logits (see fig2)",
    ),
)
