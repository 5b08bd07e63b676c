"""All three papers, from fastest to slowest: statements, Kim, Herasimchyk, Wu.

    from posbias_papers.everything import make_all

    ran = make_all("results")
    print(ran.failed, ran.seconds)

What is made with at least the effort asked for is skipped, unless other models or rollout files are asked for.
What is on record at a greater effort is drawn from that, and nothing is trained for it. A part that fails does not
stop the others. What each study took goes to OUT/papers.json (`costs`).
"""

import importlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.core.arguments import shortened, whole
from posbias.core.errors import (
    InputFileError,
    InvalidValueError,
    MissingPackageError,
    ModelError,
    PosbiasError,
)
from posbias.core.events import Event, OnEvent
from posbias.core.files import need_writable
from posbias.core.lazy import missing as missing_package
from posbias.core.lazy import need
from posbias_papers.costs import Costs
from posbias_papers.herasimchyk2026.cells import check_models
from posbias_papers.registry import find_studies
from posbias_papers.reproduction import Spent
from posbias_papers.results import Basis, Recorded
from posbias_papers.study import Study, minutes_text
from posbias_papers.theorems import STATEMENTS, Statements, statements_of, tried_already, try_statements

log = logging.getLogger("posbias.papers")
AT_HAND = ("tiny-alibi",)
"""The models that come with posbias, for when another cannot be had."""
FURTHER_TEXTS = "herasimchyk2026/fig4"
"""The figure that needs a second text, here the first with its tokens shuffled: by default of the small model
alone, as it doubles what has to be measured."""


@dataclass(frozen=True)
class Ran:
    """What a run made, what was there, what there was nothing for, what failed; what it took in seconds."""

    made: tuple[str, ...]
    found: tuple[str, ...]
    left_out: Mapping[str, str]
    failed: Mapping[str, str]
    seconds: float
    costs: Path


@dataclass(frozen=True)
class Asked:
    """What is asked of all parts.

    `effort` is quick, full, or a number in the unit of all studies; `models` are those of Herasimchyk et al. 2026
    (none: those at hand), `configs` a folder of the authors' rollout files; `engine` does the training and the
    statements (none: the cores here), of which each is tried on `instances` (none: as the effort says). With
    `again` recorded results are not used.
    """

    folder: Path
    effort: str | int
    models: tuple[str, ...]
    configs: Path | None
    engine: Any
    instances: int | None
    on_event: OnEvent | None
    again: bool = False

    def amount(self, study: Study) -> Any:
        """What is spent on each cell of a study; of one that is on record at more effort, that."""
        if self.instances is not None and isinstance(study, Statements):
            return self.instances
        wanted = study.of_number(self.effort) if isinstance(self.effort, int) else study.effort[self.effort]
        recorded = self.recorded(study)
        more = recorded is not None and recorded.basis > Basis(*wanted.amount(study.cells))
        return recorded.effort if recorded is not None and more else wanted

    def recorded(self, study: Study) -> Recorded | None:
        """What is on record of all of a study's cells, unless all is to be made again."""
        recorded = None if self.again or not study.shared_out else study.recorded(study)
        return recorded if recorded is not None and recorded.whole else None

    @property
    def options(self) -> dict[str, Any]:
        """What, beside the effort, results of measured models depend on."""
        return {"models": list(self.models), "configs": None if self.configs is None else str(self.configs)}


def make_all(
    folder: str | Path,
    names: str | Iterable[str] = (),
    *,
    effort: str | int = "quick",
    models: Sequence[str] = (),
    configs: str | Path | None = None,
    engine: Any = None,
    again: bool = False,
    instances: int | None = None,
    on_event: OnEvent | None = None,
) -> Ran:
    """Make every study of `names` (papers or studies; none: all) that `folder` has not, and write what each took.

    The arguments are those of `Asked`; `again` makes even what is there (of cells that are kept). What quick and
    full will cost is logged first. Raises `InvalidValueError` for an unknown name or effort, a number where there
    are several units, a model given twice or a folder of configurations that is none, `OutputFileError` before any
    work if `folder` cannot be written, `MissingPackageError` where nothing can be made without a package, and
    KeyboardInterrupt on Ctrl-C, saying what is kept. What else goes wrong is in `Ran.failed`.
    """
    began, folder = time.monotonic(), Path(folder)
    wanted = list(dict.fromkeys(part for study in find_studies(names) for part in study.made_of))
    place = None if configs is None else Path(configs)
    asked = Asked(folder, effort, tuple(models), place, engine, instances, on_event, again)
    _check(asked, wanted)
    words = effort if isinstance(effort, str) else f"{effort:,} {wanted[0].unit}"
    costs = Costs(folder / "papers.json", words, asked.options)
    missing = [study for study in wanted if again or not _finished(study, asked, costs)]
    found = [study.key for study in wanted if study not in missing]
    if isinstance(effort, str):
        log.info(_announcement(asked, missing, len(found), effort))
    made: list[str] = []
    left_out: dict[str, str] = {}
    failed: dict[str, str] = {}
    try:
        for studies in _parts(asked, missing):
            try:
                spent, reasons = _make(asked, studies)
            except Exception as error:
                # the other parts are to be made all the same; what went wrong is said now and at the end
                told = _told(error)
                keys = [study.key for study in studies]
                failed |= dict.fromkeys(keys, told)
                log.error("%s: %s", ", ".join(keys), told)
                continue
            paper = studies[0].paper
            for each in spent:
                costs.note(f"{paper}/{each.name}", each)
                made.append(f"{paper}/{each.name}")
            left_out |= {f"{paper}/{name}": f"left out, {reason}" for name, reason in reasons.items()}
            costs.save()
    except KeyboardInterrupt as stopped:
        left = [study for study in missing if study.key not in {*made, *left_out, *failed}]
        kept = f"{len(made) + len(found)} of {len(wanted)} studies are kept in {folder}{_rest(left, effort)}"
        detail = f" ({stopped})" if str(stopped) else ""
        raise KeyboardInterrupt(f"{kept}; the same command goes on from there{detail}") from None
    finally:
        costs.save()
    return Ran(tuple(made), tuple(found), left_out, failed, time.monotonic() - began, costs.path)


def _check(asked: Asked, wanted: Sequence[Study]) -> None:
    if isinstance(asked.effort, int):
        whole("effort", asked.effort, 1)
    units = dict.fromkeys(unit for study in wanted for unit in study.unit.split(", "))
    if isinstance(asked.effort, int) and len(units) > 1:
        raise InvalidValueError(
            f"effort: {asked.effort} given, quick or full needed: there are several units ({', '.join(units)})"
        )
    if isinstance(asked.effort, str) and asked.effort not in ("quick", "full"):
        raise InvalidValueError(f"effort: {shortened(asked.effort)} given, quick or full needed")
    need_writable(asked.folder / "papers.json")
    if any(not isinstance(study, Statements) for study in wanted):
        need("matplotlib", work="drawing", extra="report")
    if all(_needs_torch(asked, study) and not study.file(asked.folder).exists() for study in wanted):
        need("torch", work="each of these studies")
    if asked.configs is not None and not asked.configs.is_dir():
        raise InvalidValueError(f"configs: {asked.configs} is no folder, one with the authors' files needed")
    twice = [name for name in asked.models if asked.models.count(name) > 1]
    if twice:
        raise InvalidValueError(f"models: {twice[0]} given twice, once needed")
    check_models(asked.models)


def _finished(study: Study, asked: Asked, costs: Costs) -> bool:
    """Whether a study is there with the effort asked for, and, of measured models, the same ones."""
    if isinstance(study, Statements):
        try:
            return tried_already(asked.folder, study.paper, asked.amount(study)) is not None
        except InputFileError:
            return False  # trying them says what is wrong
    state = study.state(asked.folder)
    enough = ("full", asked.effort, getattr(asked.amount(study), "name", ""))
    if not state.made or isinstance(asked.effort, int) or state.effort not in enough:
        return False
    return study.needs != "models" or costs.options_of(study.key) == asked.options


def _needs_torch(asked: Asked, study: Study) -> bool:
    """Whether a study cannot be made without, of rollout files neither."""
    return study.needs == "torch" or (study.needs == "models" and asked.models != ("none",))


def _told(error: Exception) -> str:
    absent = missing_package(error) if isinstance(error, ModuleNotFoundError) else None
    if absent is not None or isinstance(error, PosbiasError):
        return str(absent or error)
    return f"{type(error).__name__}: {error}"


def _announcement(asked: Asked, missing: Sequence[Study], found: int, effort: str) -> str:
    if not missing:
        return f"everything is there ({found} studies)"
    recorded = [study for study in missing if _drawn_from_records(asked, study)]
    costs = [getattr(study, effort) for study in missing if study not in recorded]
    if not costs:
        return f"{len(missing)} studies to draw from recorded results"
    long = minutes_text(sum(cost.minutes for cost in costs))
    total = f"{len(costs)} studies to make at the {effort} effort: at most {long} on {costs[0].machine}"
    total += ", less where they share cells"
    total += f"; {len(recorded)} to draw from recorded results" if recorded else ""
    return total + (f"; {found} are there already" if found else "")


def _drawn_from_records(asked: Asked, study: Study) -> bool:
    """Whether nothing is trained for a study, since all is on record at the effort that it gets."""
    recorded = asked.recorded(study)
    return recorded is not None and recorded.effort == asked.amount(study)


def _rest(left: Sequence[Study], effort: str | int) -> str:
    """What an interruption says of studies that are not made."""
    if not left or isinstance(effort, int):
        return ""
    costs = [getattr(study, effort) for study in left]
    long = minutes_text(sum(cost.minutes for cost in costs))
    return f"; {len(left)} to make, at most {long} on {costs[0].machine}"


# --- the parts ---------------------------------------------------------------------------------------------


def _parts(asked: Asked, missing: Iterable[Study]) -> list[list[Study]]:
    """Studies that are made together, from fastest to slowest: those that share what takes long."""
    papers = ("kim2026", "herasimchyk2026", "wu2025")
    parts: dict[tuple[int, bool, str], list[Study]] = {}
    for study in missing:
        stated = isinstance(study, Statements)
        place = -1 if stated else papers.index(study.paper)
        alone = study.key if stated or study.paper == "kim2026" else getattr(asked.amount(study), "name", "")
        parts.setdefault((place, study.key == FURTHER_TEXTS, alone), []).append(study)
    return [parts[part] for part in sorted(parts, key=lambda part: part[:2])]


def _make(asked: Asked, studies: Sequence[Study]) -> tuple[Iterable[Spent], Mapping[str, str]]:
    """Make the studies of a part: what each took, and, by name, why others were left out."""
    paper, amount = studies[0].paper, asked.amount(studies[0])
    if isinstance(studies[0], Statements):
        return [_try_statements(asked, paper, amount)], {}
    package = importlib.import_module(f"posbias_papers.{paper}")
    options: dict[str, Any] = {"out": asked.folder / paper, "on_event": asked.on_event}
    match paper:
        case "kim2026":
            options["samples"] = amount
        case "wu2025":
            options |= {"effort": amount, "engine": asked.engine, "recorded": not asked.again}
        case _:
            further = studies[0].key == FURTHER_TEXTS
            models = asked.models or (AT_HAND if further else package.MODELS)
            options |= {"models": () if models == ("none",) else models, "scramble": further}
            options |= {"configs": asked.configs, "quick": asked.effort != "full"}
            options["prompts"] = asked.effort if isinstance(asked.effort, int) else None
    names = [study.name for study in studies]
    try:
        reproduction = package.reproduce(names, **options)
    except (ModelError, MissingPackageError) as error:
        if asked.models or options.get("models", AT_HAND) == AT_HAND:
            raise
        log.warning("%s; going on with %s alone", error, ", ".join(AT_HAND))
        reproduction = package.reproduce(names, **options | {"models": AT_HAND})
    return reproduction.spent, reproduction.left_out


def _try_statements(asked: Asked, paper: str, instances: int) -> Spent:
    """Try the numbered statements of a paper."""
    began, heard = time.monotonic(), Event(0)

    def on_event(event: Event) -> None:
        nonlocal heard
        heard = event
        if asked.on_event:
            asked.on_event(event)

    options: dict[str, Any] = {"instances": instances, "engine": asked.engine, "on_event": on_event}
    tried = try_statements(asked.folder, [paper], **options)
    # one that could not be tried was to do as well, and is neither
    found = len(statements_of([paper])) - int(heard.total or 0)
    return Spent(STATEMENTS, time.monotonic() - began, len(tried) - found, found)
