"""Impact statement: what the theory says of a model before it is trained, held against the trained one.

Before training a model's mask and slopes are known, and λ is that of a network at initialisation
(`PreNormInit`). That is level (b) with another λ: what training adds to the prediction is the measured λ. Only
models with linear biases are looked at, as other positional logits come with training. The paper says that the
theory can diagnose architectures, and tries none before training: the claims are ours.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from posbias.profiles.claims import Claim
from posbias.profiles.evidence import Above, Evidence
from posbias.profiles.profile import Profile, spearman, wasserstein
from posbias.theory.mixing import PreNormInit
from posbias_papers.claims import claims_of
from posbias_papers.herasimchyk2026.cells import Key
from posbias_papers.herasimchyk2026.curves import Curves
from posbias_papers.herasimchyk2026.levels import architectures, profile_of
from posbias_papers.herasimchyk2026.measurements import Measurements, once
from posbias_papers.herasimchyk2026.standing import OURS
from posbias_papers.pages import Table

RANKED = 0.5
"""A prediction with a higher rank correlation is said to rank positions as the model does."""
HEAD = ("model", "corpus", "λ", "Spearman", "Wasserstein", "verdict", "measured")


@once
def predicted(results: Measurements) -> dict[Key, Profile]:
    """Level (b) with λ at initialisation, of each measured model with linear biases on its first corpus."""
    found = {}
    for key in results.leading:
        cell = results.cells[key]
        if results.curves(key).additive and "mixing" in cell:
            level = architectures(cell, results.reading)["b"]
            found[key] = profile_of("b", replace(level, mixing=PreNormInit()), key.tokens)
    return found


def _each(of: Callable[[Curves, Profile], Evidence]) -> Callable[[Measurements], list[Evidence]]:
    return lambda results: [of(results.curves(key), one) for key, one in predicted(results).items()]


def _ranks(curves: Curves, before: Profile) -> Evidence:
    return curves.evidence(curves.name, lambda measured: spearman(before.mass, measured) - RANKED)


def _nearer(curves: Curves, before: Profile) -> Evidence:
    after = curves.levels["b"].mass
    return curves.evidence(
        curves.name, lambda measured: wasserstein(before.mass, measured) - wasserstein(after, measured)
    )


_claim = claims_of("herasimchyk2026/fig2", "Impact statement", **OURS)
CLAIMS: tuple[Claim, ...] = (
    _claim(
        8,
        "Before training, slopes with λ at initialisation rank positions as the trained model does (Spearman "
        f"above {RANKED:g})",
        _each(_ranks),
        Above(least=0.0),
    ),
    _claim(
        9, "The λ that training brings takes the prediction nearer, by Wasserstein distance", _each(_nearer)
    ),
)


def data(results: Measurements) -> dict[str, Any]:
    """Scores and verdicts before training and with the measured λ, for JSON."""
    listed = []
    for key, before in predicted(results).items():
        curves = results.curves(key)
        measured = curves.influence
        for name, profile in (("at initialisation", before), ("measured", curves.levels["b"])):
            scores = {of.__name__: float(of(profile.mass, measured.mass)) for of in (spearman, wasserstein)}
            verdicts = {"verdict": str(profile.summary.verdict), "measured": str(measured.summary.verdict)}
            listed.append({"model": key.model, "corpus": key.corpus, "mixing": name, **scores, **verdicts})
    return {"before_training": listed}


def table(results: Measurements) -> Iterator[Table]:
    """The same in words, if there is any."""
    rows = [
        [f"{value:.3f}".replace("-", "−") if isinstance(value, float) else value for value in row.values()]
        for row in data(results)["before_training"]
    ]
    if rows:
        yield Table("Level (b) before training and with the measured λ (ours)", HEAD, rows)
