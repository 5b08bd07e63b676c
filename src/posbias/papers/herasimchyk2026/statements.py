"""What the paper says of its figures and tables (§4, §6 and the appendices), as claims on measured models.

How claims are judged: `posbias.claims`. Errors are over prompts (bootstrap, or Student's t), for
Table 6 over layers and heads, which share their prompts, so that it is too small there. A rollout has no error of
its own: what is said of one alone holds or does not. Densities are in units of an even spread.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from posbias.claims import LEAST, Above, Below, Evidence, Judged, Near, judged_sentence, mean, signed_text
from posbias.estimate import Estimate
from posbias.papers.herasimchyk2026.agreement import Agreement, trough
from posbias.papers.herasimchyk2026.homogeneity import Fit, Homogeneity
from posbias.papers.herasimchyk2026.levels import Curves
from posbias.papers.herasimchyk2026.order import Order
from posbias.papers.herasimchyk2026.printed import TABLE4, TABLE5, VIOLATIONS
from posbias.profile import RISE, SHARE, Profile, spearman, uniform, wasserstein

UNMEASURED = "influence was not measured here"
FLOORS = 1.5
"""A rate of violations up to so many noise floors is within the noise, whose own spread is not known."""


# --- levels ------------------------------------------------------------------------------------------------


def level_claims(shown: Sequence[Curves], seed: int = 0) -> list[Judged]:
    """Figures 2 and 3: what levels and measured curves are said to look like."""
    content = [one for one in shown if "c" in one.levels]
    claims = [
        judged_sentence(
            "(a) Attention-only rollout collapses onto the first token (more than half of the mass)",
            tuple(Evidence(_of(one), Estimate(float(one.levels["a"].mass[0]) - 0.5)) for one in shown),
        ),
        judged_sentence(
            "(b) Residual-aware rollout is U-shaped: both ends are denser than 1.25 times the trough",
            tuple(effect for one in shown for effect in _ends(_of(one), one.levels["b"])),
        ),
    ]
    if content:
        claims += [
            judged_sentence(
                "(c) Constant content shifts mass toward later positions (mean position, share of the text)",
                tuple(_shift(one) for one in content),
            ),
            judged_sentence(
                "… and lowers the primacy peak (density of the first 5 %)",
                tuple(_first(one) for one in content),
            ),
            judged_sentence(
                "… and keeps the U",
                tuple(effect for one in content for effect in _ends(_of(one), one.levels["c"])),
            ),
        ]
    return [
        *claims,
        judged_sentence(
            "(measured) Influence is U-shaped",
            tuple(effect for one in shown for effect in _measured_ends(one)),
        ),
        judged_sentence(
            "The minimum of (b) lies where that of the measured influence does (share of the text)",
            tuple(_minimum(one, seed) for one in shown),
        ),
    ]


def _of(one: Curves) -> str:
    return f"{one.model}, {one.corpus}" if one.corpus else one.model


def _ends(where: str, profile: Profile) -> list[Evidence]:
    """That a rollout's first and last 5 % exceed its trough by `RISE`."""
    s = profile.summary
    least = RISE * profile.trough_share.value * s.tokens / s.ends
    return [
        _of_prompts(f"{where}, {name}", density - least)
        for name, density in (("first", s.ratio[0]), ("last", s.ratio[2]))
    ]


def _measured_ends(one: Curves) -> list[Evidence]:
    measured, ends = one.measured, ("first", "last")
    if measured is None:
        return [Evidence(f"{_of(one)}, {name}", flaw=UNMEASURED) for name in ends]
    tokens, width = measured.tokens, measured.summary.ends
    least, even = measured.trough_share, width / tokens
    shares = (measured.share(0, width), measured.share(tokens - width, tokens))
    effects = []
    for name, share in zip(ends, shares, strict=True):
        value = (share.value - RISE * least.value) / even
        se = math.hypot(share.se, RISE * least.se) / even
        effects.append(Evidence(f"{_of(one)}, {name}", Estimate(value, se, share.n)))
    return effects


def _of_prompts(where: str, value: float) -> Evidence:
    """An effect of levels with measured λ and content, whose error over prompts is not computed.

    It says nothing where it is smaller than the least that counts.
    """
    if abs(value) < LEAST:
        return Evidence(where, flaw=f"{signed_text(value)}, too near the bound without an error over prompts")
    return Evidence(where, Estimate(value))


def _shift(one: Curves) -> Evidence:
    place = np.linspace(0.0, 1.0, one.levels["b"].tokens)
    return _of_prompts(_of(one), float((one.levels["c"].mass - one.levels["b"].mass) @ place))


def _first(one: Curves) -> Evidence:
    before, after = (one.levels[letter].summary.ratio[0] for letter in "bc")
    return _of_prompts(_of(one), before - after)


def _minimum(one: Curves, seed: int) -> Evidence:
    if one.measured is None:
        return Evidence(_of(one), flaw=UNMEASURED, test=Near())
    tokens, width = one.measured.tokens, max(1, round(SHARE * one.measured.tokens))
    at = int(trough(np.asarray(one.levels["b"].mass), width))

    def distance(measured: np.ndarray) -> np.ndarray:
        return (at - trough(measured, width)) / (tokens - 1)

    return Agreement(one, seed).evidence(_of(one), distance, Near())


# --- agreement ---------------------------------------------------------------------------------------------


def spearman_claims(shown: Sequence[Agreement]) -> list[Judged]:
    """Tables 2 and 4: that (b) ranks better than (a), and than (c), which (a) does not do at all."""
    return [
        judged_sentence(
            "(b) has a higher Spearman correlation than (a)",
            tuple(one.difference(_of(one.curves), "spearman", "b", "a") for one in shown),
        ),
        judged_sentence(
            "(b) has the highest: above (c) too",
            tuple(one.difference(_of(one.curves), "spearman", "b", "c") for one in shown),
        ),
        judged_sentence(
            "(a) performs poorly: its Spearman correlation is negative",
            tuple(_negative(one) for one in shown),
        ),
    ]


def wasserstein_claims(shown: Sequence[Agreement]) -> list[Judged]:
    """Tables 3 and 5: that (b) is nearer than (a), and (c) than (b), and (a) further than an even spread."""
    return [
        judged_sentence(
            "(b) is nearer than (a), by Wasserstein distance",
            tuple(one.difference(_of(one.curves), "wasserstein", "a", "b") for one in shown),
        ),
        judged_sentence(
            "(c) is nearer than (b)",
            tuple(one.difference(_of(one.curves), "wasserstein", "b", "c") for one in shown),
        ),
        judged_sentence(
            "(a) performs poorly: an even spread is nearer",
            tuple(_beyond_even(one) for one in shown),
        ),
    ]


def _negative(one: Agreement) -> Evidence:
    predicted = np.asarray(one.curves.levels["a"].mass)
    return one.evidence(_of(one.curves), lambda measured: spearman(predicted, measured), Below())


def _beyond_even(one: Agreement) -> Evidence:
    predicted = np.asarray(one.curves.levels["a"].mass)
    even = np.asarray(uniform(predicted.size).mass)
    return one.evidence(
        _of(one.curves), lambda measured: wasserstein(predicted, measured) - wasserstein(even, measured)
    )


def printed_claims(score: str) -> list[Judged]:
    """The same of the numbers that the paper prints, which carry no error."""
    table = TABLE4 if score == "spearman" else TABLE5
    rows = {f"{model}, {corpus}": values for model, by in table.items() for corpus, values in by.items()}
    up, better = (1.0, "higher") if score == "spearman" else (-1.0, "nearer")
    pair = "(b) is higher than (c)" if score == "spearman" else "(c) is nearer than (b)"
    return [
        judged_sentence(
            f"(the paper's own numbers) (b) is {better} than (a)",
            tuple(Evidence(where, Estimate(up * (b - a))) for where, (a, b, _) in rows.items()),
        ),
        judged_sentence(
            f"(the paper's own numbers) {pair}",
            tuple(Evidence(where, Estimate(b - c)) for where, (_, b, c) in rows.items()),
        ),
    ]


# --- content and order -------------------------------------------------------------------------------------


def homogeneity_claims(shown: Sequence[Homogeneity]) -> list[Judged]:
    """Table 6: that entries are homogeneous within either region, more than normal numbers would seem."""
    return [
        judged_sentence(
            "Mean content logits are more homogeneous than normal numbers of the same mean and deviation",
            tuple(
                mean(f"{one.model}, {region}", value - null)
                for one in shown
                for region, value, null in one.regions()
            ),
        )
    ]


def content_claims(fits: Mapping[str, Fit]) -> list[Judged]:
    """Figure 5: that constant and diagonal explain most of the mean content logits, with one sign of δ."""
    signs = []
    for model, fit in fits.items():
        positive = float((fit.offset > 0).mean())
        signs.append(Evidence(model, Estimate(min(positive, 1.0 - positive)), test=Near()))
    return [
        judged_sentence(
            "A constant with an offset on the diagonal explains most of the variance of mean content (R² − ½)",
            tuple(_explained(model, fit) for model, fit in fits.items()),
        ),
        judged_sentence(
            "The diagonal shifts all heads the same way (share of heads with the rarer sign of δ)",
            tuple(signs),
        ),
    ]


def _explained(model: str, fit: Fit) -> Evidence:
    """That R² is above one half; undecided where noise may be what is not explained."""
    r2, most = (values[np.isfinite(values)] for values in (fit.r2, fit.most))
    effect = mean(model, r2 - 0.5, test=Above())
    if effect.verdict() == "fails" and most.mean() > 0.5:
        return Evidence(model, flaw=f"R² {r2.mean():.2f} as it is, up to {most.mean():.2f} without noise")
    return effect


def order_claims(shown: Sequence[Order]) -> list[Judged]:
    """Section 4: that at most 10⁻⁶ of all triples violate Assumption 4.1; undecided within sampling noise."""
    return [
        judged_sentence(
            f"At most {VIOLATIONS:.0e} of all triples violate stochastic monotonicity (powers of ten below that)",
            tuple(_rate(one) for one in shown),
        )
    ]


def _rate(one: Order) -> Evidence:
    floor = f", noise floor {one.floor:.2g}" if math.isfinite(one.floor) else ""
    where = f"{one.model}, {one.corpus} (rate {one.rate:.2g}{floor})"
    if VIOLATIONS < one.rate <= FLOORS * one.floor:
        return Evidence(where, flaw="within the noise of so few prompts")
    return Evidence(where, Estimate(math.log10(VIOLATIONS) - math.log10(max(one.rate, 1e-12))))
