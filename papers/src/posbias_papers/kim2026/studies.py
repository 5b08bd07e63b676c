"""Figures 1 to 7 and Section 3 as studies: which models are simulated for each, and what is claimed of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from posbias.profiles.claims import Claim
from posbias.profiles.evidence import Below, Near
from posbias.reports.pages import Table
from posbias.simulation import RecencyModel
from posbias_papers.claims import Maker, claims_of
from posbias_papers.kim2026 import closed_forms as forms
from posbias_papers.kim2026 import quantities as q
from posbias_papers.kim2026.heat_maps import data, draw_heat_maps, printed_table
from posbias_papers.kim2026.models import (
    ALPHAS,
    EFFORT,
    EXPECTED,
    FOUR,
    PRINTED,
    by_anisotropy,
    check_alphas,
    models,
    note,
    probabilities,
    where_of,
)
from posbias_papers.study import Results, Studies, Study

BARE, ISOTROPIC, ANISOTROPIC, RESIDUAL = (models(row) for row in FOUR)
"""The four models at 16 and 64 dimensions."""
WIDE = (256, 1024)
"""Dimensions of Figure 4."""


def _study(
    short: str,
    title: str,
    question: str,
    cells: Sequence[RecencyModel],
    claims: Iterable[Claim],
    draw: Callable[..., Any] | None = None,
    *,
    layers: Sequence[int] = (1, 2),
    printed: bool = False,
    compared: Callable[[Results], Iterable[forms.Compared]] = lambda results: (),
) -> Study:
    """A study of simulated models: probabilities of some `layers`, beside printed numbers and closed forms."""

    def tables(results: Results) -> Iterator[Table]:
        yield probabilities(results, layers)
        if printed:
            yield printed_table(results)
        if rows := [*compared(results)]:
            yield forms.table_of(rows)

    return Study(
        f"kim2026/{short}",
        title,
        question,
        tuple(cells),
        tuple(claims),
        EFFORT,
        "draws",
        {"quick": round(0.024 * len(cells), 2), "full": round(0.24 * len(cells), 1)},
        tables,
        lambda results: data(results, printed=printed, compared=compared(results)),
        note,
        draw,
        expected=EXPECTED if printed else (),
    )


# --- what claims rest on -----------------------------------------------------------------------------------

TOY = "models without learnable parameters, feed-forward network or positional encoding, 10 tokens"
SCOPE = f"the four {TOY}; d = 16 and 64; layers 1 and 2"
ROW = "Section 3, on the {} row of Figure 1"
"""Where the text speaks of a model."""
DRAWS = "10,000,000 simulations"
"""What the paper's numbers rest on."""


def _claims_of(short: str, place: str, scope: str) -> tuple[Maker, Maker]:
    """What makes the paper's claims of a study, and ours: what a figure or a proof may show and no text says."""
    every = {"scope": scope, "effort": DRAWS}
    ours = claims_of(f"kim2026/{short}", f"beyond {place}", **every, provenance="ours")
    return claims_of(f"kim2026/{short}", place, **every), ours


# --- Section 3 and the four models -------------------------------------------------------------------------


def _section3() -> Iterator[Claim]:
    claim, ours = _claims_of("section3", "Section 3", SCOPE)
    bare, isotropic, third, last = (ROW.format(row) for row in ("first", "second", "third", "last"))
    for number, (printed, model) in enumerate(PRINTED, start=1):
        sentence = f"The recency probability of {where_of(model, 2)}, is {printed}"
        place = last if model.residual else third if model.anisotropy else isotropic
        yield claim(number, sentence, q.printed(printed, model), place=place, strength="printed")
    sentence = (
        "Without LayerNorm the recency probability remains close to one half in layers 1 and 2 (within .01)"
    )
    yield claim(7, sentence, q.probability(BARE, 1, 2), Near(0.5, q.CLOSE), place=bare, strength="hedged")
    hedged = {"place": isotropic, "strength": "hedged"}
    sentence = "With LayerNorm and α = 0 a mild recency bias emerges at d = 16 in layer 2"
    yield claim(8, sentence, q.probability(ISOTROPIC[:1], 2), q.RECENT, **hedged)
    sentence = (
        "With LayerNorm and α = 0 no clear recency bias is observed at d = 64 in layer 2 (to four digits)"
    )
    yield claim(9, sentence, q.probability(ISOTROPIC[1:], 2), Near(0.5, q.DIGIT), **hedged)
    sentence = "At α = 0.5 layer 2 shows recency: a clear bias, less pronounced with a residual connection"
    recent = q.probability((*ANISOTROPIC, *RESIDUAL), 2)
    yield claim(10, sentence, recent, q.RECENT, place=ROW.format("third and last").replace("row", "rows"))
    sentence = "Recency is clearer at α = 0.5 than at α = 0: the probability of layer 2 is higher"
    yield claim(11, sentence, q.excess(ANISOTROPIC, ISOTROPIC, 2), q.MORE, place=third)
    sentence = (
        "A residual connection makes recency at α = 0.5 less pronounced: the probability of layer 2 is lower"
    )
    yield claim(12, sentence, q.excess(ANISOTROPIC, RESIDUAL, 2), q.MORE, place=last)
    sentence = "Fewer dimensions show more: the probability of layer 2 is higher at d = 16 than at d = 64"
    narrow, wide = zip(ISOTROPIC, ANISOTROPIC, RESIDUAL, strict=True)
    yield ours(13, f"{sentence}, at α = 0 and 0.5", q.narrow_excess(narrow, wide), q.MORE)
    fewer = q.narrow_excess(narrow[:1], wide[:1])
    yield claim(14, f"{sentence}, at α = 0", fewer, q.MORE, place=isotropic)


def _fig1() -> Iterator[Claim]:
    claim, ours = _claims_of("fig1", "Figure 1", SCOPE)
    bare, isotropic, third, last = (ROW.format(row) for row in ("first", "second", "third", "last"))
    sentence = "The first layer prefers neither end, in any model (recency probability one half, within .001)"
    yield ours(1, sentence, q.probability(models(FOUR), 1), Near(0.5, q.FIRST_LAYER))
    sentence = (
        "Without LayerNorm the scores of layer 2 are uniform along each row but for the diagonal (within 5 %)"
    )
    yield claim(2, sentence, q.even_rows(BARE, 2), place=bare)
    sentence = "LayerNorm makes mean scores of layer 2 rise along every row at α = 0, in"
    yield claim(3, f"{sentence} 16 dimensions", forms.rising(ISOTROPIC[:1]), place=isotropic)
    proven = {"place": "Theorem 1; Figure 1, second row", "strength": "theorem"}
    yield claim(4, f"{sentence} 64 dimensions (Theorem 1)", forms.rising(ISOTROPIC[1:]), **proven)
    sentence = "At α = 0.5 mean scores of layer 2 strictly increase with the key along every row"
    yield claim(5, sentence, q.rising(ANISOTROPIC, 2), place=third)
    sentence = "With a residual connection mean scores of layer 2 still rise along every row (Proposition 2)"
    yield claim(6, sentence, q.rising(RESIDUAL, 2), place="Proposition 2", strength="theorem")
    sentence = "A residual connection reduces the overall scale of the scores off the diagonal of layer 2"
    yield claim(7, sentence, q.higher_scores(ANISOTROPIC, RESIDUAL, 2), place=last)
    sentence = (
        "Scores do not depend on distance alone: at every distance the last query gives more than the first"
    )
    beyond = q.beyond_distance((*ANISOTROPIC, *RESIDUAL), 2)
    yield claim(8, sentence, beyond, place="Section 4, on relativity")
    sentence = "It gives the last query's score for the key before it in layer 2 within 10 %"
    for number, (reading, words) in enumerate(forms.READINGS.items(), start=9):
        off = forms.scores(models(FOUR), reading)
        where = f"(closed form, {words}) {sentence}"
        yield ours(number, where, off, Near(0.0, forms.GOOD), place="Eqs. 5, 19, 41")
    sentence = "Without LayerNorm no attention bias is observed in the first layer"
    level = f"{sentence} (recency probability one half, within .01)"
    yield claim(11, level, q.probability(BARE, 1), Near(0.5, q.CLOSE), place=bare)
    sentence = "With LayerNorm and α = 0 the scores of layer 2 off the diagonal are nearly uniform at d = 64"
    even = q.even_rows(ISOTROPIC[1:], 2)
    yield claim(12, f"{sentence} (within 5 % of a row's)", even, place=isotropic, strength="hedged")


def _fig3() -> Iterator[Claim]:
    claim, ours = _claims_of("fig3", "Figure 3", SCOPE.replace("layers 1 and 2", "layers 3 and 4"))
    bare = q.probability(BARE, 3, 4)
    sentence = "Without LayerNorm the recency probability of layers 3 and 4 is close to one half (within .01)"
    yield ours(1, sentence, bare, Near(0.5, q.CLOSE))
    sentence = "Attention layers alone lead to a bias toward earlier tokens: layers 3 and 4 without LayerNorm"
    place = f"{ROW.format('first')}, and Figure 3"
    yield claim(2, sentence, bare, Below(0.5, q.DIGIT), place=place)
    sentence = "LayerNorm induces recency in stacked layers: at α = 0.5 layers 3 and 4 rise along every row"
    yield ours(3, sentence, q.rising((*ANISOTROPIC, *RESIDUAL), 3, 4), q.MORE)
    sentence = "With LayerNorm and isotropic embeddings layers 3 and 4"
    recent, level = (q.probability([model], 3, 4) for model in ISOTROPIC)
    yield ours(4, f"{sentence} prefer recent keys, in 16 dimensions", recent, q.RECENT)
    sentence += " show no recency in 64 dimensions, to four digits"
    yield ours(5, sentence, level, Near(0.5, q.DIGIT))
    sentence = "Recency grows with depth: its probability rises from layer 2 to 3 and from 3 to 4"
    yield ours(6, sentence, q.growth((*ISOTROPIC[:1], *ANISOTROPIC, *RESIDUAL), 2, 3), q.MORE)
    sentence = "A residual connection weakens recency in layers 3 and 4 too"
    yield ours(7, sentence, q.excess(ANISOTROPIC, RESIDUAL, 3, 4), q.MORE)


def _fig4() -> Iterator[Claim]:
    claim, ours = _claims_of("fig4", "Figure 4", SCOPE.replace("16 and 64", "256 and 1,024"))
    bare, isotropic, plain, residual = (models(row, WIDE) for row in FOUR)
    sentence = "Without LayerNorm the recency probability of layer 2 is close to one half (within .01)"
    none = q.probability(bare, 2)
    yield claim(
        1,
        f"{sentence} in 256 and 1,024 dimensions",
        none,
        Near(0.5, q.CLOSE),
        place="Proposition 1, and Figure 4",
    )
    sentence = "With LayerNorm isotropic embeddings prefer recent keys in 256 and 1,024 dimensions"
    words = f"{sentence}, by however little (Theorem 1, d ≫ 1)"
    yield claim(2, words, forms.rising(isotropic), place="Theorem 1, and Figure 4", strength="theorem")
    sentence = "With anisotropic embeddings mean scores of layer 2 rise along every row, at d = 256 and 1,024"
    proven = {"place": "Propositions 2 and 3, and Figure 4", "strength": "theorem"}
    yield claim(3, sentence, forms.rising((*plain, *residual)), **proven)
    narrow, broad = zip(plain, residual, strict=True)
    for number, (words, both) in enumerate((("256", narrow), ("1,024", broad)), start=4):
        sentence = f"With anisotropic embeddings {words} dimensions show recency in layer 2, to four digits"
        yield ours(number, sentence, q.probability(both, 2), q.VISIBLE)
    sentence = (
        "Recency weakens with the dimension: its probability in layer 2 is higher at d = 256 than at 1,024"
    )
    yield ours(6, sentence, q.narrow_excess(narrow, broad), q.MORE)


# --- by anisotropy -----------------------------------------------------------------------------------------


def _rows(alphas: Sequence[float], *, residual: bool) -> list[dict[str, Any]]:
    """The rows of Figures 5 and 6."""
    return [{"anisotropy": alpha, "residual": residual} for alpha in alphas]


def _by_anisotropy(short: str, place: str, alphas: Sequence[float], *, residual: bool) -> Iterator[Claim]:
    """Claims of Figures 5 and 6, of which the text says no more than the propositions do."""
    scope = f"{TOY}; d = 16 and 64; layers 1 and 2; several α, which the text does not give"
    claim, ours = _claims_of(short, place, scope)
    shown = by_anisotropy(residual=residual, alphas=alphas)
    curved = [model for model in shown if model.anisotropy]
    level = [model for model in shown if not model.anisotropy]
    proven = {"place": f"Proposition 3, and {place}", "strength": "theorem"}
    sentence = "At every anisotropy above 0 mean scores of layer 2 rise along every row (Proposition 3)"
    yield claim(1, sentence, forms.rising(curved), **proven)
    sentence = (
        "At α = 0 too mean scores of layer 2 rise along every row (in closed form where draws cannot tell)"
    )
    proven["place"] = f"{'Proposition 2' if residual else 'Theorem 1'}, and {place}"
    yield claim(2, sentence, forms.rising(level), **proven, alias_of="" if residual else "kim2026/fig1/4")
    sentence = "The more anisotropic the embeddings, the higher the recency probability of layer 2"
    steps = [(less, more) for less, more in pairwise(shown) if less.dimension == more.dimension]
    less, more = zip(*steps, strict=True)
    yield ours(3, sentence, q.excess(more, less, 2), q.MORE)
    sentence = (
        "The first layer prefers neither end, at any anisotropy (recency probability one half, within .001)"
    )
    again = "kim2026/fig5/4" if residual else ""
    yield ours(4, sentence, q.probability(shown, 1), Near(0.5, q.FIRST_LAYER), alias_of=again)
    if residual:
        sentence = "A residual connection weakens recency in layer 2, at every anisotropy above 0"
        pairs = zip(*(models(_rows(alphas, residual=kind)) for kind in (False, True)), strict=True)
        without, having = zip(*(pair for pair in pairs if pair[0].anisotropy), strict=True)
        yield ours(5, sentence, q.excess(without, having, 2), q.MORE)


def _key_factors(short: str, title: str, question: str, alphas: Sequence[float], *, residual: bool) -> Study:
    """Figure 2 or 7: every anisotropy at 16 and 64 dimensions."""
    cells = by_anisotropy(residual=residual, alphas=alphas)
    claims = forms.key_factor_claims(f"kim2026/{short}", residual=residual, alphas=alphas)
    draw = partial(forms.draw_key_factor_figure, residual=residual, alphas=alphas)
    compared = partial(forms.key_factor_rows, cells)
    return _study(short, title, question, cells, claims, draw, layers=(2,), compared=compared)


def _the_four() -> Iterator[Study]:
    """Figures 1, 3 and 4 and Section 3, whose models are the paper's."""
    yield _study(
        "fig1",
        "Mean scores of four models, layers 1 and 2, d = 16 and 64",
        "Does LayerNorm turn random embeddings towards recent keys, and a residual connection less so?",
        models(FOUR),
        _fig1(),
        partial(draw_heat_maps, rows=FOUR),
        printed=True,
        compared=lambda results: [forms.score_row(results[model]) for model in models(FOUR)],
    )
    yield _study(
        "fig3",
        "Mean scores of the four models, layers 3 and 4",
        "Does the preference for recent keys persist in further layers?",
        models(FOUR),
        _fig3(),
        partial(draw_heat_maps, rows=FOUR, layers=(3, 4)),
        layers=(3, 4),
    )
    yield _study(
        "fig4",
        "Mean scores of the four models, d = 256 and 1,024",
        "Does the preference for recent keys persist in wide models?",
        models(FOUR, WIDE),
        _fig4(),
        partial(draw_heat_maps, rows=FOUR, dimensions=WIDE),
    )
    yield _study(
        "section3",
        "The recency probabilities printed in Section 3",
        "Are the printed recency probabilities those of the model they are said to be of?",
        (*BARE, *(model for _, model in PRINTED)),
        _section3(),
        printed=True,
    )


def with_alphas(alphas: Sequence[float] | None = None) -> Studies:
    """Figures 1 to 7 and Section 3, those by anisotropy with these. Raises as `check_alphas`."""
    alphas = check_alphas(ALPHAS if alphas is None else alphas)
    rows, residual_rows = (_rows(alphas, residual=residual) for residual in (False, True))
    one, three, four, section = _the_four()
    made = [
        one,
        _key_factors(
            "fig2",
            "Key factor h(j) by anisotropy",
            "Does the closed form rise with the key, and faster for anisotropic embeddings?",
            alphas,
            residual=False,
        ),
        three,
        four,
        _study(
            "fig5",
            "Mean scores by anisotropy",
            "How does recency depend on the angle between embeddings?",
            models(rows),
            _by_anisotropy("fig5", "Figure 5", alphas, residual=False),
            partial(draw_heat_maps, rows=rows),
        ),
        _study(
            "fig6",
            "Mean scores by anisotropy, with a residual connection",
            "How does recency depend on the angle between embeddings under a residual connection?",
            (*models(residual_rows), *models(rows)),
            _by_anisotropy("fig6", "Figure 6", alphas, residual=True),
            partial(draw_heat_maps, rows=residual_rows),
        ),
        _key_factors(
            "fig7",
            "Key factor h(j) by anisotropy, with a residual connection",
            "Does the closed form rise with the key under a residual connection?",
            alphas,
            residual=True,
        ),
        section,
    ]
    return Studies(made)


STUDIES = with_alphas()
"""Figures 1 to 7, and the probabilities that the text prints."""
