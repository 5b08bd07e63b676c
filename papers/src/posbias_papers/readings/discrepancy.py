"""A discrepancy: one quantity as published and as corrected, and what computing it may need.

A function from `Material` to both numbers (`answer`) under `@discrepancy` is one; so is the counterexample of a
numbered statement (`of_witness`). `Material` has what the results hold and raises `UnavailableError` for what is
not there: the authors' rollout files, a measurement of a model that is not bundled.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.core.errors import InputFileError, PosbiasError
from posbias.profiles.estimate import Estimate
from posbias.simulation.model import RecencyModel
from posbias_papers.closed_forms.recency import exact_scores, recency_excess
from posbias_papers.statements.margins import Margin
from posbias_papers.statements.record import Statement

if TYPE_CHECKING:
    import xarray as xr

    from posbias.simulation import RecencyResult

log = logging.getLogger("posbias.papers")
TOKENS, PROMPTS = 64, 8
"""What the bundled model is measured on where the results hold nothing larger."""
LONG = 256
"""Length of the prompts of those measurements that results hold."""
BOTH: tuple[Literal["published", "corrected"], ...] = ("published", "corrected")
"""The two readings, by the names under which functions of `posbias.theory` and of papers know them."""
BUNDLED = "tiny-alibi"
"""The model that is always at hand."""
exact = functools.cache(exact_scores)
"""Expected scores of two or three tokens, integrated."""
excess = functools.cache(recency_excess)
"""The recency probability of three tokens less one half, integrated."""


class UnavailableError(PosbiasError):
    """A reading needs something that is not there; the message says what, and how to get it."""


@dataclass(frozen=True)
class Comparison:
    """A quantity in both readings: `difference` is corrected − published, `others` further numbers by name.

    `where` says what stands in the paper, in plain text; `note` is Markdown and has the others too.
    """

    published: Estimate
    corrected: Estimate
    difference: Estimate
    note: str = ""
    others: Mapping[str, Estimate] = field(default_factory=dict)
    key: str = ""
    paper: str = ""
    where: str = ""
    quantity: str = ""
    erratum: str = ""


@dataclass(frozen=True)
class Material:
    """What readings are computed from: a folder of results, one of the authors' rollout files."""

    results: Path | None = None
    rollouts: Path | None = None

    @property
    def configs(self) -> Path:
        """The folder of the authors' rollout files. Raises `UnavailableError` without one."""
        if self.rollouts is None:
            raise UnavailableError(
                "needs the authors' rollout files; clone github.com/ml-uhh/position-bias and give "
                "config/rollout/alibi as configs"
            )
        return self.rollouts

    def measured(
        self, model: str = BUNDLED, *, scramble: bool = False, needs: Iterable[str] = ()
    ) -> "xr.Dataset":
        """A measurement on the bundled text with these variables: the one of most prompts that the results hold.

        The bundled model is measured on 8 prompts of 64 tokens where they hold none. Raises `UnavailableError` for
        another model, `MissingPackageError` without torch.
        """
        for measurement in _kept(self.results, model, scramble):
            if all(name in measurement for name in needs):
                return measurement
        if model != BUNDLED:
            raise UnavailableError(
                f"needs a measurement of {model}; `posbias paper herasimchyk2026 all --models {model}` makes one"
            )
        return _measure(scramble)


@dataclass(frozen=True)
class Discrepancy:
    """A quantity to be computed in both readings: `key` PAPER/NAME, of an erratum."""

    key: str
    quantity: str
    compute: Callable[[Material], Comparison]
    erratum: str

    @property
    def paper(self) -> str:
        """The citation key of its paper."""
        return self.key.partition("/")[0]


def discrepancy(key: str, erratum: str = "") -> Callable[[Callable[[Material], Comparison]], Discrepancy]:
    """A decorator: the function as a `Discrepancy`, by default of the erratum of the same key.

    The quantity is the first paragraph of its docstring.
    """

    def record(compute: Callable[[Material], Comparison]) -> Discrepancy:
        quantity = " ".join((inspect.getdoc(compute) or "").partition("\n\n")[0].split())
        return Discrepancy(key, quantity, compute, erratum or key)

    return record


def of_witness(statement: Statement) -> Discrepancy:
    """That of a statement on its counterexample: the bound as printed, and the true value."""

    def compute(material: Material) -> Comparison:
        compared = statement.slack(statement.witness or {})
        assert isinstance(compared, Margin)
        smaller, larger = sorted(map(abs, (compared.bound, compared.value)))
        ratio: dict[str, Any] = {"larger_over_smaller": larger / smaller} if smaller else {}
        return answer(compared.bound, compared.value, **ratio)

    quantity = f"{statement.shows}: printed bound, true"
    return Discrepancy(statement.erratum, quantity, compute, statement.erratum)


def answer(
    published: float | Estimate,
    corrected: float | Estimate,
    note: str = "",
    *,
    difference: Estimate | None = None,
    **others: Any,
) -> Comparison:
    """Plain numbers compared, the two independent unless `difference` is given; names have _ for a space."""
    one, other = _estimate(published), _estimate(corrected)
    named = {name.replace("_", " "): _estimate(number) for name, number in others.items()}
    return Comparison(one, other, difference or other - one, note, named)


def _estimate(number: float | Estimate) -> Estimate:
    return number if isinstance(number, Estimate) else Estimate(float(number))


@functools.cache
def simulated(model: RecencyModel, samples: int = 200_000) -> "RecencyResult":
    """A simulation of a model of Kim et al. 2026 with this many samples."""
    from posbias.simulation import simulate_recency

    return simulate_recency(model, samples)


def _kept(results: Path | None, model: str, scramble: bool) -> "list[xr.Dataset]":
    """Measurements of the model in the results, the one of most prompts first."""
    from posbias.profiles.measurements import load_measurement

    measurements = []
    name = f"{model}-bundled{'-scrambled' if scramble else ''}-{LONG}x*.nc"
    for path in sorted((results / "herasimchyk2026" / "cells").glob(name)) if results else ():
        try:
            measurements.append(load_measurement(path))
        except InputFileError as error:
            log.warning("%s; not used", error)
    return sorted(measurements, key=lambda measurement: -measurement.sizes["prompt"])


@functools.cache
def _measure(scramble: bool) -> "xr.Dataset":
    from posbias.measurement import measure

    log.info("measuring %s on %d prompts of %d tokens …", BUNDLED, PROMPTS, TOKENS)
    return measure(BUNDLED, tokens=TOKENS, prompts=PROMPTS, scramble=scramble, dense_logits=True)
