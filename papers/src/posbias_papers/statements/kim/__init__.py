"""The statements of Kim et al. 2026, each as something that can be tried.

The theorem and the propositions, which are about means in many dimensions, are tried as predicates (Definition 1)
on closed forms (`closed_forms`); what they say about drawn inputs, and so the printed equations, against small
simulations (`simulations`). A misprint in a proof is a claim of its own: what is proven may stand.
"""

from functools import partial
from typing import Any

from posbias.theory.closed_forms.layernorm import isotropic_scores, scores_without_layernorm
from posbias_papers.statements.kim import closed_forms, simulations
from posbias_papers.statements.kim.extensions import EXTENSIONS
from posbias_papers.statements.kim.masks import MASKS
from posbias_papers.statements.kim.variants import VARIANTS
from posbias_papers.statements.statement import ROUNDING, Slack, Statement, statement

_ONE_INPUT = {"seed": 0, "samples": 1, "tokens": 8, "dimension": 1024, "anisotropy": 0.0, "residual": False}
_MANY_INPUTS = {**_ONE_INPUT, "samples": 1000, "tokens": 6, "dimension": 256}
_AGREE = "within 5 standard errors and 5/d"
_ANY_MODEL = partial(closed_forms.draw_model, anisotropic=True, residuals=True)
_TOY = "no learnable parameters, d ≫ 1, layer 2"
_ISOTROPIC = f"α = 0, no residual connection, {_TOY}"
_OURS = {"provenance": "ours", "strength": "observation", "effort": "none: not a statement of the paper"}


def _proven(scope: str) -> dict[str, str]:
    """Of a theorem or proposition, by the scope of its text."""
    return {"scope": scope, "effort": "a proof, by the law of large numbers"}


def _step(scope: str) -> dict[str, str]:
    """Of an equation of a proof."""
    return _proven(scope) | {"strength": "constant"}


def _readings(slack: Slack, **fixed: Any) -> tuple[Slack, Slack]:
    """A slack of the printed closed form, and of the corrected one."""
    return partial(slack, reading="published", **fixed), partial(slack, reading="corrected", **fixed)


KIM: tuple[Statement, ...] = (
    statement(
        "kim-theorem-1",
        "Theorem 1",
        "for d ≫ 1 S⁽²⁾ exhibits recency bias (Definition 1): its closed form, Eq. 5, does at every d",
        partial(closed_forms.draw_model, anisotropic=False, residuals=False, least=1),
        partial(closed_forms.definition, reading="published", theorem=True),
        tolerance=0.0,
        note="A statement about means, which the law of large numbers gives for d ≫ 1, and so about the closed "
        "form; what it asserts is a rise of e^−√d per position relative to the score, which vanishes as d grows.",
        about=_proven(_ISOTROPIC),
    ),
    statement(
        "kim-theorem-1-draws",
        "Theorem 1, of drawn inputs",
        "S⁽²⁾ of a single drawn input satisfies Definition 1",
        (
            partial(simulations.draw_inputs, samples=1, largest=1024),
            partial(simulations.draw_inputs, samples=800, largest=81, fewest=7),
        ),
        (simulations.one_draw, simulations.mean_rise),
        corrected=f"the mean of S⁽²⁾ rises along its rows as the corrected closed form does, {_AGREE}",
        tolerance=(1e-9, 0.0),
        note="A reading of ours: scores of a draw differ by about 1, their means by √d·(κρ)², and the theorem is "
        "one about means.",
        witness=_ONE_INPUT,
        about=_OURS | {"scope": f"single inputs; {_ISOTROPIC}"},
    ),
    statement(
        "kim-proposition-1",
        "Proposition 1",
        "without LayerNorm S⁽²⁾ does not exhibit recency bias (fails Definition 1)",
        closed_forms.draw_three_or_more,
        closed_forms.without_recency,
        tolerance=ROUNDING,
        note="Equality below the diagonal, so the slack is 0; at every α, with residual too, for 3 tokens or "
        "more (with 2, Definition 1 only compares the diagonal, and holds).",
        about=_proven(f"without LayerNorm; {_ISOTROPIC}"),
    ),
    statement(
        "kim-proposition-2",
        "Proposition 2",
        "with a residual connection or without, S⁽²⁾ exhibits recency bias (Definition 1), at α = 0",
        partial(closed_forms.draw_model, anisotropic=False, residuals=True),
        partial(closed_forms.definition, reading="corrected"),
        tolerance=0.0,
        note="In closed form with one γ throughout. The order below the diagonal stands with each of the three "
        "γ of Eqs. 26, 27 and 34 (a residual divides the rise by 1 + g, g = 1/√d); the scale of Eq. 41 is a "
        "misprint, see Proposition 3.",
        about=_proven(f"α = 0, {_TOY}"),
    ),
    statement(
        "kim-proposition-3",
        "Proposition 3",
        "with Eqs. 33 and 41 as printed S⁽²⁾ satisfies Definition 1, S_ii = √d by Eqs. 20 and 21",
        _ANY_MODEL,
        _readings(closed_forms.definition),
        corrected="at every α in [0, 1), with residual or without, S⁽²⁾ satisfies Definition 1: with corrected "
        "constants",
        tolerance=0.0,
        note="It stands. Below the diagonal it holds as printed too; but Eq. 41 has d for the √d of Eq. 5, and "
        "Eq. 33 dγ for γ, which put S_{i,i−1} above S_ii = √d once α√d > 1: misprints.",
        witness={"tokens": 3, "dimension": 64, "anisotropy": 0.5, "residual": False},
        asserts="at every anisotropy α in [0, 1), with a residual connection or without, S⁽²⁾ exhibits recency "
        "bias (Definition 1)",
        about=_proven(f"every α in [0, 1), with a residual connection or without, {_TOY}"),
    ),
    statement(
        "kim-equation-5",
        "Equation 5",
        f"for d ≫ 1 Eq. 5, cross terms taken as zero, is the mean of S⁽²⁾ at α = 0, {_AGREE}",
        simulations.draw_inputs,
        _readings(simulations.mean_score, of=isotropic_scores, layernorm=True),
        corrected=f"Eq. 5 with κe^−√d for e^−√d is the mean of S⁽²⁾ at α = 0, {_AGREE}",
        tolerance=0.0,
        note="The paper claims no such accuracy. Scores of variance one stand in an exponent, E e^z = √e: Eq. 5 "
        "is too small by κ → √e, its rise per position by κ² → e, however large d is. Theorem 1 stands. (At every "
        "α: κ → exp((1 − α²)²/2).)",
        witness=_MANY_INPUTS,
        about=_step(_ISOTROPIC) | {"provenance": "ours"},
    ),
    statement(
        "kim-equation-19",
        "Equation 19",
        f"Eq. 19 is the mean of S⁽²⁾ without LayerNorm, {_AGREE}",
        simulations.draw_inputs,
        _readings(simulations.mean_score, of=scores_without_layernorm, layernorm=False),
        corrected=f"Eq. 19 divided by √d is the mean of S⁽²⁾ without LayerNorm, {_AGREE}",
        tolerance=0.0,
        note="Eqs. 17 to 19 lack the 1/√d of the score (Eq. 12): a misprint on which nothing in Proposition 1 "
        "depends.",
        witness=_MANY_INPUTS,
        about=_step(f"without LayerNorm; {_ISOTROPIC}"),
    ),
    statement(
        "kim-equation-42",
        "Equation 42",
        f"for d ≫ 1 h(j)/h(0), γ = 1 with a residual, is the ratio of the mean scores of a row, {_AGREE}",
        partial(simulations.draw_inputs, anisotropic=True, samples=500),
        _readings(simulations.key_ratio),
        corrected=f"h(j)/h(0) with g, and κF for F is the ratio of the mean scores of a row, {_AGREE}",
        tolerance=0.0,
        note="The paper claims no such accuracy. γ in Eq. 42 is the weight of the normalised y, g = 1/√(d(1−α)); "
        "Figure 7 (γ = 1) is not the simulated model. e^(α√d) needs the factor κ as in Eq. 5.",
        witness={**_MANY_INPUTS, "dimension": 64, "anisotropy": 0.5, "residual": True},
        about=_step(f"every α in [0, 1), with a residual connection or without, {_TOY}")
        | {"provenance": "ours"},
    ),
    statement(
        "kim-figure-2",
        "Section 3, Figure 2",
        "h grows more at any α > 0 than at α = 0, at every d and number of tokens too",
        _ANY_MODEL,
        (closed_forms.grows_with_anisotropy, closed_forms.growth_bounded),
        corrected="h grows by a factor of at most exp((1−α)κe^(−(1−α)√d)/(1+g)) per position, the exponent "
        "peaking at 1−α = 1/√d, and of at most (1+g)/√(α+2αg+g²) in all",
        note="Wider than the paper, whose figure is of d = 64 and α ≤ .8, where it is so. Per position "
        "h grows by about (1−α)e^(−(1−α)√d), at most 1/(e√d) at 1 − α = 1/√d; in all by at most 1/√α, at α = 0 "
        "without limit. At d = 16 ten tokens give 1.163 at α = 0 and 1.132 at α = .75.",
        witness={"tokens": 10, "dimension": 16, "anisotropy": 0.75, "residual": False},
        about=_OURS | {"scope": "Eq. 42 at every d, α and number of tokens"},
    ),
    statement(
        "kim-section-3",
        "Section 3, without LayerNorm",
        "the recency probability is close to one half in layers 3 and 4 as in 1 and 2 (within .05)",
        simulations.draw_without_layernorm,
        (simulations.close_to_half, simulations.primacy_from_layer_three),
        corrected="close to one half in layers 1 and 2; from layer 3 scores fall along every row, and it is below",
        tolerance=(1e-9, ROUNDING),
        note="Wider than the paper, which speaks of layers 1 and 2, where it is so, and expects a bias toward "
        "earlier tokens; layers 3 and 4 show it, .08 and .01 at d = 16 and 10 tokens.",
        witness={**_ONE_INPUT, "samples": 200, "tokens": 10, "dimension": 16, "layer": 3},
        about=_OURS | {"scope": "layers 1 to 4 without LayerNorm, α = 0, no residual connection"},
    ),
    *EXTENSIONS,
    *VARIANTS,
    *MASKS,
)
"""The statements of Kim et al. 2026, the numbered ones and the equations and figures they rest on."""
