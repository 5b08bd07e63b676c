"""Table 1 and Figures 1 to 24 as studies: which networks are trained, what is claimed of them, how it is drawn.

Figures 13 to 18 and 20 to 23 repeat others with a fixed vocabulary; 19 and 24 are captions of these.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from posbias.profiles.claims import Claim
from posbias.theory.masks import Causal, Full, Mask, Prefix, SlidingWindow
from posbias_papers.claims import Maker, claims_of
from posbias_papers.study import Studies, Study, minutes_text
from posbias_papers.wu2025 import depth, mitigations, sinks
from posbias_papers.wu2025 import quantities as q
from posbias_papers.wu2025.anisotropy import by_strength
from posbias_papers.wu2025.biased_training import training_claims
from posbias_papers.wu2025.drawing import (
    draw_biased_training,
    draw_curves,
    draw_depths,
    draw_maps,
    draw_sinks,
)
from posbias_papers.wu2025.masks import FIGURE
from posbias_papers.wu2025.observed import STUDY as OBSERVED
from posbias_papers.wu2025.power import what_depth_does
from posbias_papers.wu2025.recorded import recorded
from posbias_papers.wu2025.settings import (
    ABSOLUTE,
    DEEP,
    DEPTHS,
    EFFORT,
    FULL,
    RELATIVE,
    Inputs,
    Setting,
    effort_of,
)
from posbias_papers.wu2025.settled import decided_by, withholds
from posbias_papers.wu2025.table1 import TABLE
from posbias_papers.wu2025.tables import data, note, tables

ALONE = [Setting(layers, False, positional=word) for word in RELATIVE for layers in DEPTHS]
RESIDUAL = [Setting(layers, True, positional=word) for word in RELATIVE for layers in DEEP]
"""Causal networks by encoding and depth, without and with residual connections."""
ANSWERS = (
    (3, 15, ("first", "last"), "both ends"),
    (6, 16, ("first",), "the first item"),
    (7, 17, ("middle",), "the middle item"),
    (8, 18, ("last",), "the last item"),
)
"""Figures on biased training, those that repeat them, and the items that training asks for."""
PLACES = {2: "Section 5.1", 3: "Section 5.2", 4: "Appendix K.1", 5: "Appendix K.2"}
PLACES |= dict.fromkeys((6, 7, 8), "Appendix K.3") | dict.fromkeys((9, 10, 11, 12), "Appendix K.4")
"""Where the paper speaks of a figure; of all others in Appendix L."""
REPEATED = (13, 15, 16, 17, 18)
"""Figures with a fixed vocabulary of whose findings the text says that most hold."""
SAID_BEFORE: Mapping[int, Mapping[int, str]] = {
    4: {place: f"fig2/{place}" for place in range(1, 11)} | {11: "fig2/15", 12: "fig2/16"},
    9: {1: "fig10/1", 2: "fig10/2"},
    14: {6: "fig13/13"},
    20: {1: "fig21/1", 2: "fig21/2"},
}
"""Claims that stand in another figure too, by number: Figure 4 is half of Figure 2, and so on."""
TRAINING = f"{FULL.iterations[2]:,} iterations, {len(FULL.seeds)} networks, {FULL.sequences:,} test sequences"
"""What the paper's numbers rest on."""


def _depths() -> Iterator[Study]:
    yield from _figures(
        "Gap by depth, without and with residual connections",
        "Does depth turn a network without any bias in its data towards earlier items, and do decay and rotary "
        "encodings work against it?",
        "",
        quick={2: 11},
        full=1039,
        cells=[*ALONE, *(cell for cell in RESIDUAL if cell.depth in DEPTHS)],
        claims=depth.both_kinds,
        draw=draw_depths,
    )
    yield from _figures(
        "Gap by depth, attention layers alone",
        "Does each further layer without residual connections favour earlier items more?",
        "Does depth favour earlier items when inputs are a fixed set of correlated vectors?",
        quick={4: 5.1, 13: 2.8},
        full=461,
        cells=ALONE,
        claims=depth.pure_attention,
        draw=draw_depths,
    )
    yield from _figures(
        "Gap by depth up to ten layers, with residual connections",
        "With residual connections, does the bias still grow with depth, or rise and fall?",
        "With residual connections and a fixed vocabulary, does every pair of layers add to the bias?",
        quick={5: 12, 14: 6.9},
        full=1625,
        cells=RESIDUAL,
        claims=depth.with_residuals,
        draw=draw_depths,
    )


def _answers() -> Iterator[Study]:
    for number, again, answers, asked in ANSWERS:
        question = f"Which masks and encodings learn a preference for {asked}?"
        if asked == "both ends":
            question = "Does the causal mask let a network learn a preference for either end, "
            question += "and does the middle get lost?"
        encodings = [(mask, word) for mask in (Full(), Causal()) for word in ABSOLUTE]
        yield from _figures(
            f"Gap after training that asks for the {' and the '.join(answers)} item",
            question,
            f"Is a preference for {asked} learnt with a fixed vocabulary too?",
            quick={number: 2.4, again: 0.9},
            full=158,
            cells=[Setting(mask=mask, positional=word, answers=answers) for mask, word in encodings],
            claims=training_claims,
            draw=draw_biased_training,
        )


def _sinks() -> Iterator[Study]:
    yield from _figures(
        "Attention maps of two-layer causal networks",
        "Does attention gather on the first token when nothing in the data prefers it?",
        "Does attention gather on the first token with a fixed vocabulary too?",
        quick={9: 0.7, 20: 0.3},
        full=45,
        cells=_two_layers(Causal()),
        claims=sinks.causal,
        draw=draw_maps,
    )
    yield from _figures(
        "Sink metric under the causal mask",
        "Is the first token a sink, beyond what even attention and untrained networks give it?",
        "Is the first token a sink with a fixed vocabulary too?",
        quick={10: 0.7, 21: 0.3},
        full=45,
        cells=_two_layers(Causal()),
        claims=sinks.causal,
        draw=draw_sinks,
    )
    yield from _figures(
        "Sink metric under sliding windows of 5, 9 and 13 tokens",
        "Is the first token more of a sink the wider the window?",
        "Is the first token more of a sink under wider windows with a fixed vocabulary too?",
        quick={11: 1.8, 22: 0.7},
        full=123,
        cells=_two_layers(*map(SlidingWindow, (5, 9, 13))),
        claims=sinks.windows,
        draw=draw_sinks,
    )
    yield from _figures(
        "Sink metric under prefix masks of 2, 4 and 6 tokens",
        "Are all tokens of the prefix sinks, and not the first alone?",
        "Are all tokens of a prefix sinks with a fixed vocabulary too?",
        quick={12: 1.7, 23: 0.7},
        full=115,
        cells=_two_layers(*map(Prefix, (2, 4, 6))),
        claims=sinks.prefixes,
        draw=draw_sinks,
    )


def _two_layers(*masks: Mask) -> list[Setting]:
    """The networks whose sinks are looked at, without and with residual connections."""
    return [Setting(residual=residual, mask=mask) for residual in (False, True) for mask in masks]


def _figures(
    title: str,
    question: str,
    repeated: str,
    *,
    quick: Mapping[int, float],
    full: float,
    cells: Sequence[Setting],
    claims: Callable[[Maker, Sequence[Setting]], Iterable[Claim]],
    draw: Callable[..., Any],
) -> Iterator[Study]:
    """A figure and, with the question `repeated`, the one that repeats it with a fixed vocabulary.

    `quick` are their minutes by number; those of the effort `full` are reckoned from the rates of quick runs.
    """
    uses = ("liu2024", "the middle that gets lost")
    if draw in (draw_maps, draw_sinks):
        uses = ("xiao2024", "attention sinks")
    titles = title, f"Figure {next(iter(quick))}, fixed vocabulary"
    told = zip(titles, (question, repeated), get_args(Inputs), strict=True)
    findings: list[Claim] = []
    curved = draw not in (draw_maps, draw_sinks)
    for (number, minutes), (title, question, kind) in zip(quick.items(), told, strict=False):
        own = tuple(replace(cell, inputs=kind) for cell in cells)
        claim = _maker(number, own)
        stated = [*claims(claim, own)]
        if number in REPEATED:
            stated.append(_most(claim, next(iter(quick)), stated, findings))
        findings = stated
        yield Study(
            f"wu2025/fig{number}",
            title,
            question,
            own,
            tuple(_once(number, stated)),
            EFFORT,
            "iterations",
            {"quick": minutes, "full": full},
            tables,
            data,
            note,
            draw,
            captioned=True,
            needs="torch",
            uses=(uses,),
            recorded=recorded,
            of_number=effort_of,
            withholds=partial(withholds, curved=curved),
            decided_by=decided_by(f"fig{number}", minutes_text(full), curved),
        )


def _most(claim: Maker, figure: int, repeated: Sequence[Claim], findings: Sequence[Claim]) -> Claim:
    """That most of the paper's findings on a figure continue to hold."""
    twins = zip(repeated, findings, strict=False)
    own = [twin for twin, finding in twins if finding.provenance == "paper"]
    sentence = f"With a fixed vocabulary most findings of Figure {figure} continue to hold"
    return claim(len(repeated) + 1, sentence, q.most(own), strength="hedged")


def _most_of_main_text(known: Mapping[str, Study]) -> Study:
    """Figure 13 with what the text says of the main text's findings together: those of Figures 13 and 15."""
    figures = [known["fig13"], known["fig15"]]
    mine = [
        f"wu2025/fig{n}/{place}" for n, places in ((13, range(1, 10)), (15, range(2, 7))) for place in places
    ]
    findings = [claim for figure in figures for claim in figure.claims if claim.id in mine]
    first = figures[0]
    told = {
        "place": "Appendix L",
        "provenance": "paper",
        "strength": "hedged",
        "scope": "the retrieval task with a fixed vocabulary: what Figures 13 and 15 show",
    }
    sentence = "With a fixed vocabulary most of the findings of the main text continue to hold"
    quantity = q.most(findings, figures[1].cells)
    claim = replace(first.claims[0], id=f"{first.key}/15", sentence=sentence, quantity=quantity, **told)
    return replace(first, claims=(*first.claims, claim))


def _once(number: int, stated: Sequence[Claim]) -> Iterator[Claim]:
    """The claims of a figure; those that stand in another one too name it."""
    for claim in stated:
        place = int(claim.id.rpartition("/")[2])
        other = SAID_BEFORE.get(number, {}).get(place, "")
        yield replace(claim, alias_of=other and f"wu2025/{other}")


EMBEDDED = "embeddings of variance 1/d as in the text (the authors' code: of standard deviation 1/d)"


def _scope(layers: str, inputs: str) -> str:
    return f"attention-only networks of {layers} on the retrieval task with {inputs}, {EMBEDDED}"


def _maker(number: int, cells: Sequence[Setting]) -> Maker:
    """What makes the claims of a figure: of the networks it shows, at the paper's effort."""
    depths = sorted({cell.depth for cell in cells})
    layers = f"{', '.join(map(str, depths))} layers" if max(depths) <= DEPTHS[-1] else "2 layers and more"
    inputs = "a fixed vocabulary" if cells[0].inputs == "fixed_vocabulary" else "the Gaussian mixture"
    scope = _scope(layers, inputs)
    place = f"{PLACES.get(number, 'Appendix L')}, Figure {number}"
    # of single findings with a fixed vocabulary the text says only that most hold, but for what it names
    whose: dict[str, Any] = {} if number in PLACES else {"provenance": "ours"}
    return claims_of(f"wu2025/fig{number}", place, scope=scope, effort=TRAINING, **whose)


def _caption(number: int, question: str, minutes: tuple[float, float], *parts: Study) -> Study:
    """A number that is the caption of other figures, which stand for it."""
    first, last = (part.name.removeprefix("fig") for part in (parts[0], parts[-1]))
    return replace(
        parts[0],
        key=f"wu2025/fig{number}",
        title=f"Caption of Figures {first} to {last}",
        question=question,
        cells=tuple(dict.fromkeys(cell for part in parts for cell in part.cells)),
        claims=(),
        minutes=dict(zip(EFFORT, minutes, strict=True)),
        draw=None,
        parts=parts,
    )


def _along_training(figure: Study) -> Study:
    """A study of our own on the networks of Figure 2: does what is said of them depend on when they are asked?"""
    key = "wu2025/curves"
    about = {"scope": figure.claims[0].scope, "effort": TRAINING, "provenance": "ours"}
    claim = claims_of(key, "Section 5.1, Figure 2", **about)
    return replace(
        figure,
        key=key,
        title="Learning curves of the networks of Figure 2",
        question="Are gaps settled, and does depth add to them relative to accuracy, and at equal loss?",
        claims=(
            *depth.along_training(claim, figure.cells),
            *what_depth_does(claim, 7, figure.cells),
        ),
        draw=draw_curves,
    )


def _all() -> Iterator[Study]:
    known = {study.name: study for study in (*_depths(), *_answers(), *_sinks())}
    known["fig13"] = _most_of_main_text(known)
    question = "Do networks with a fixed vocabulary learn the preferences of their training data?"
    known["fig19"] = _caption(19, question, (3.8, 631), *(known[f"fig{part}"] for part in range(15, 19)))
    question = "Are there sinks with a fixed vocabulary, under each of the three masks?"
    known["fig24"] = _caption(24, question, (1.7, 283), *(known[f"fig{part}"] for part in range(21, 24)))
    yield from (TABLE, FIGURE)
    yield from (known[f"fig{number}"] for number in range(2, 25))
    yield _along_training(known["fig2"])
    yield OBSERVED
    yield from mitigations.STUDIES
    yield by_strength(known["fig11"], _scope("2 layers", "either kind of inputs"), TRAINING)


STUDIES = Studies(_all())
"""Table 1, every figure from 1 to 24, the learning curves of Figure 2, what mitigates gaps, and gaps by λ."""
