"""Where the papers, their code and the truth disagree: entries (`errata.toml`), and what computes their numbers.

    from posbias_papers.errata import ERRATA

An entry says what is printed or coded, what holds, and what posbias does, in Markdown. A `Discrepancy` is a
quantity of it as published and as corrected: a function from `Material` to both numbers (`answer`) under
`@discrepancy`; all of them are in `posbias_papers.readings`. An entry without one says why there is no number
(`no_number`). `Material` has what the results hold and raises `UnavailableError` for what is not there: the
authors' rollout files, a measurement of a model that is not bundled. The record of a numbered statement names its
erratum (`posbias_papers.statements`).
"""

import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.core.errors import InputFileError, PosbiasError, nearest, shortened, wrong
from posbias.core.files import data_table
from posbias.core.sources import cite
from posbias.profiles.estimate import Estimate

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

# --- entries -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Erratum:
    """One disagreement: where it stands, what is `printed` or coded, what `holds`, and what `posbias` does.

    The four are Markdown. `no_number` says why no reading computes a number; empty where one does. `quotes` are
    the numbers in the text as they stand there (".738", "7e-66", "−.31", "22 %"), each with "READING: NUMBER",
    NUMBER being published, corrected, difference, or one of the others by its name. `measured` says on what those
    of measured readings were measured.
    """

    key: str
    where: str
    printed: str
    holds: str
    posbias: str
    no_number: str = ""
    measured: str = ""
    quotes: Mapping[str, str] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """The citation key of its paper."""
        return self.key.partition("/")[0]


_DATA = data_table(__file__)
ERRATA: tuple[Erratum, ...] = tuple(Erratum(**given) for given in _DATA["erratum"])
"""Every entry, paper by paper, in the order of the text."""
_BY_KEY = {one.key: one for one in ERRATA}
HEADS: Mapping[str, str] = _DATA["heads"]
"""How pages of the site begin, by name."""


def find_erratum(key: str) -> Erratum:
    """The entry of this key. Raises `InvalidValueError` naming the nearest."""
    if key not in _BY_KEY:
        raise wrong("erratum", "a key of errata.toml", got=f"{shortened(key)}{nearest(key, _BY_KEY)}")
    return _BY_KEY[key]


def errata_page() -> str:
    """All errata as Markdown: a section for each paper and a heading for each entry."""
    lines, remarks = [HEADS["errata"]], _DATA["remarks"]
    for paper in dict.fromkeys(one.paper for one in ERRATA):
        source = cite(paper)
        lines += [f"## {source.short.split(' (')[0]}, *{source.title}*\n", f"{remarks.get(paper, '')}\n"]
        for one in (one for one in ERRATA if one.paper == paper):
            parts = {"where": one.where, "printed": one.printed, "holds": one.holds, "posbias": one.posbias}
            lines += [f"### {one.key}\n", *(f"- *{name}*: {text}" for name, text in parts.items()), ""]
    return "\n".join(lines)


# --- their numbers -------------------------------------------------------------------------------------------


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
    erratum: Erratum

    def compare(self, material: Material) -> Comparison:
        """Both numbers, with what they are about. Raises `UnavailableError`, `MissingPackageError`."""
        comparison = self.compute(material)
        others = "; ".join(f"{name} {number}" for name, number in comparison.others.items()).replace("-", "−")
        note = " ".join(filter(None, (comparison.note, others and f"Also: {others}.")))
        where, paper = re.sub(r"[`*\\]", "", self.erratum.where), self.erratum.paper
        about = {"key": self.key, "paper": paper, "quantity": self.quantity, "erratum": self.erratum.key}
        return replace(comparison, note=note, where=where, **about)


def discrepancy(key: str, erratum: str = "") -> Callable[[Callable[[Material], Comparison]], Discrepancy]:
    """A decorator: the function as a `Discrepancy`, by default of the erratum of the same key.

    The quantity is the first paragraph of its docstring.
    """

    entry = find_erratum(erratum or key)

    def record(compute: Callable[[Material], Comparison]) -> Discrepancy:
        quantity = " ".join((inspect.getdoc(compute) or "").partition("\n\n")[0].split())
        return Discrepancy(key, quantity, compute, entry)

    return record


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
