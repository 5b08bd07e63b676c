"""The statements of Kim et al. 2026, each as something that can be tried.

The theorem and the propositions are tried as predicates (Definition 1) on closed forms (`closed_forms`), what they
say about drawn inputs, and so the printed equations themselves, against small simulations (`simulations`).
"""

from functools import partial
from typing import Any

from posbias.theory.closed_forms.layernorm import isotropic_scores, scores_without_layernorm
from posbias.verify.kim import closed_forms, simulations
from posbias.verify.statement import ROUNDING, Slack, Statement, statement

_ONE_INPUT = {"seed": 0, "samples": 1, "tokens": 8, "dimension": 1024, "anisotropy": 0.0, "residual": False}
_MANY_INPUTS = {**_ONE_INPUT, "samples": 1000, "tokens": 6, "dimension": 256}
_AGREE = "within 5 standard errors and 5/d"
_ANY_MODEL = partial(closed_forms.draw_model, anisotropic=True, residuals=True)


def _readings(slack: Slack, **fixed: Any) -> tuple[Slack, Slack]:
    """A slack of the printed closed form, and of the corrected one."""
    return partial(slack, reading="published", **fixed), partial(slack, reading="corrected", **fixed)


def _definition(key: str, name: str, claim: str, draw: Any, **about: Any) -> Statement:
    """That a closed form satisfies Definition 1, printed or corrected."""
    corrected = f"{claim} with corrected constants"
    slack = _readings(closed_forms.definition)
    return statement(
        key, name, f"{claim} as printed", draw, slack, corrected=corrected, tolerance=0.0, **about
    )


KIM: tuple[Statement, ...] = (
    statement(
        "kim-theorem-1",
        "Theorem 1",
        "the closed form of S⁽²⁾ at α = 0 satisfies Definition 1 at every d: as printed",
        partial(closed_forms.draw_model, anisotropic=False, residuals=False, least=1),
        partial(closed_forms.definition, reading="published", theorem=True),
        tolerance=0.0,
        note="A statement about the closed form, at every d ≥ 1 and not for d ≫ 1 alone; what it asserts is "
        "a rise of e^−√d per position relative to the score, which vanishes as d grows.",
    ),
    statement(
        "kim-theorem-1-draws",
        "Theorem 1, of drawn inputs",
        "S⁽²⁾ of a drawn input satisfies Definition 1",
        (
            partial(simulations.draw_inputs, samples=1, largest=1024),
            partial(simulations.draw_inputs, samples=800, largest=81, fewest=7),
        ),
        (simulations.one_draw, simulations.mean_rise),
        corrected=f"the mean of S⁽²⁾ rises along its rows as the corrected closed form does, {_AGREE}",
        tolerance=(1e-9, 0.0),
        note="Scores of a draw differ by about 1, their means by √d·(κρ)²: the theorem is one about means.",
        witness=_ONE_INPUT,
    ),
    statement(
        "kim-proposition-1",
        "Proposition 1",
        "without LayerNorm S⁽²⁾ fails Definition 1",
        closed_forms.draw_three_or_more,
        closed_forms.without_recency,
        tolerance=ROUNDING,
        note="Equality below the diagonal, so the slack is 0; at every α, with residual too, for 3 tokens or "
        "more (with 2, Definition 1 only compares the diagonal, and holds).",
    ),
    _definition(
        "kim-proposition-2",
        "Proposition 2",
        "at α = 0, with residual or without, S⁽²⁾ satisfies Definition 1:",
        partial(closed_forms.draw_model, anisotropic=False, residuals=True),
        note="The order below the diagonal stands with each of the three γ of Eqs. 26, 27 and 34 (a residual "
        "divides the rise by 1 + g, g = 1/√d); but Eq. 41 has d for √d, which with some e^√d tokens puts "
        "S_{i,i−1} above S_ii.",
        witness={"tokens": 64, "dimension": 4, "anisotropy": 0.0, "residual": False},
    ),
    _definition(
        "kim-proposition-3",
        "Proposition 3",
        "at every α in [0, 1), with residual or without, S⁽²⁾ satisfies Definition 1:",
        _ANY_MODEL,
        note="Below the diagonal it holds as printed; but Eq. 41 has d for √d, and Eq. 33 dγ for γ, which "
        "put S_{i,i−1} above S_ii = √d once α√d > 1.",
        witness={"tokens": 3, "dimension": 64, "anisotropy": 0.5, "residual": False},
    ),
    statement(
        "kim-equation-5",
        "Equation 5",
        f"Eq. 5 is the mean of S⁽²⁾ at α = 0, {_AGREE}",
        simulations.draw_inputs,
        _readings(simulations.mean_score, of=isotropic_scores, layernorm=True),
        corrected=f"Eq. 5 with κe^−√d for e^−√d is the mean of S⁽²⁾ at α = 0, {_AGREE}",
        tolerance=0.0,
        note="Scores of variance one stand in an exponent, E e^z = √e: Eq. 5 is too small by κ → √e, its "
        "rise per position by κ² → e. (At every α: κ → exp((1 − α²)²/2).)",
        witness=_MANY_INPUTS,
    ),
    statement(
        "kim-equation-19",
        "Equation 19",
        f"Eq. 19 is the mean of S⁽²⁾ without LayerNorm, {_AGREE}",
        simulations.draw_inputs,
        _readings(simulations.mean_score, of=scores_without_layernorm, layernorm=False),
        corrected=f"Eq. 19 divided by √d is the mean of S⁽²⁾ without LayerNorm, {_AGREE}",
        tolerance=0.0,
        note="Eqs. 17 to 19 lack the 1/√d of the score; nothing in Proposition 1 depends on it.",
        witness=_MANY_INPUTS,
    ),
    statement(
        "kim-equation-42",
        "Equation 42",
        f"h(j)/h(0) with γ = 1 for a residual is the ratio of the mean scores of a row, {_AGREE}",
        partial(simulations.draw_inputs, anisotropic=True, samples=500),
        _readings(simulations.key_ratio),
        corrected=f"h(j)/h(0) with g, and κF for F is the ratio of the mean scores of a row, {_AGREE}",
        tolerance=0.0,
        note="γ in Eq. 42 is the weight of the normalised y, g = 1/√(d(1−α)); Figure 7 (γ = 1) is not the "
        "simulated model. e^(α√d) needs the factor κ as in Eq. 5.",
        witness={**_MANY_INPUTS, "dimension": 64, "anisotropy": 0.5, "residual": True},
    ),
    statement(
        "kim-figure-2",
        "Section 3, Figure 2",
        "h grows more at any α > 0 than at α = 0",
        _ANY_MODEL,
        (closed_forms.grows_with_anisotropy, closed_forms.growth_bounded),
        corrected="h grows by a factor of at most exp((1−α)κe^(−(1−α)√d)/(1+g)) per position, the exponent "
        "peaking at 1−α = 1/√d, and of at most (1+g)/√(α+2αg+g²) in all",
        note="Per position h grows by about (1−α)e^(−(1−α)√d), at most 1/(e√d) at 1 − α = 1/√d; in all by at "
        "most 1/√α, at α = 0 without limit. At d = 16 ten tokens give 1.163 at α = 0 and 1.132 at α = .75.",
        witness={"tokens": 10, "dimension": 16, "anisotropy": 0.75, "residual": False},
    ),
    statement(
        "kim-section-3",
        "Section 3, without LayerNorm",
        "the recency probability is close to one half in layers 1 to 4 (within .05)",
        simulations.draw_without_layernorm,
        (simulations.close_to_half, simulations.primacy_from_layer_three),
        corrected="close to one half in layers 1 and 2; from layer 3 scores fall along every row, and it is below",
        tolerance=(1e-9, ROUNDING),
        note="True of layers 1 and 2; layers 3 and 4 show primacy, .08 and .01 at d = 16 and 10 tokens.",
        witness={**_ONE_INPUT, "samples": 200, "tokens": 10, "dimension": 16, "layer": 3},
    ),
)
"""The statements of Kim et al. 2026, the numbered ones and the equations and figures they rest on."""
