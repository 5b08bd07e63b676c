"""A discrepancy: one quantity as published and as corrected, and what computing it may need.

A function from `Material` to both numbers (`answer`) under `@discrepancy` is one; so is the counterexample of a
numbered statement (`of_witness`). `Material` has what the results hold and raises `UnavailableError` for what is
not there: the authors' rollout files, a measurement of a model that is not bundled.
"""

import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.core.errors import InputFileError, PosbiasError
from posbias.profiles.estimate import Estimate
from posbias_papers.errata import find_erratum
from posbias_papers.statements.margins import Margin
from posbias_papers.statements.record import Statement

if TYPE_CHECKING:
    import xarray as xr

log = logging.getLogger("posbias.papers")
TOKENS, PROMPTS = 64, 8
"""What the bundled model is measured on where the results hold nothing larger."""
LONG = 256
"""Length of the prompts of those measurements that results hold."""
BOTH: tuple[Literal["published", "corrected"], ...] = ("published", "corrected")
"""The two readings, by the names under which functions of `posbias.theory` and of papers know them."""
BUNDLED = "tiny-alibi"
"""The model that is always at hand."""


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
        from posbias.profiles.measurements import load_measurement

        name, found = f"{model}-bundled{'-scrambled' * scramble}-{LONG}x*.nc", []
        for path in sorted(self.results.glob(f"herasimchyk2026/cells/{name}")) if self.results else ():
            try:
                found.append(load_measurement(path))
            except InputFileError as error:
                log.warning("%s; not used", error)
        if found := [one for one in found if {*needs} <= {*one}]:
            return max(found, key=lambda one: one.sizes["prompt"])
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

    def compare(self, material: Material) -> Comparison:
        """Both numbers, with what they are about. Raises `UnavailableError`, `MissingPackageError`."""
        comparison = self.compute(material)
        others = "; ".join(f"{name} {number}" for name, number in comparison.others.items()).replace("-", "−")
        note = " ".join(filter(None, (comparison.note, others and f"Also: {others}.")))
        where = re.sub(r"[`*\\]", "", find_erratum(self.erratum).where)
        about = {"key": self.key, "paper": self.paper, "quantity": self.quantity, "erratum": self.erratum}
        return replace(comparison, note=note, where=where, **about)


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

    def estimate(number: float | Estimate) -> Estimate:
        return number if isinstance(number, Estimate) else Estimate(float(number))

    one, other = estimate(published), estimate(corrected)
    named = {name.replace("_", " "): estimate(number) for name, number in others.items()}
    return Comparison(one, other, difference or other - one, note, named)


@functools.cache
def _measure(scramble: bool) -> "xr.Dataset":
    from posbias.measurement import measure

    log.info("measuring %s on %d prompts of %d tokens …", BUNDLED, PROMPTS, TOKENS)
    return measure(BUNDLED, tokens=TOKENS, prompts=PROMPTS, scramble=scramble, dense_logits=True)
