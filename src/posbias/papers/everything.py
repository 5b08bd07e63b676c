"""All three papers, from fastest to slowest: statements, Kim, Herasimchyk, Wu.

    from posbias.papers.everything import make_all

    ran = make_all("results")
    print(ran.failed, ran.seconds)

What is made with at least the effort asked for is skipped, unless other models or rollout files are asked for. A
part that fails does not stop the others. What each study took goes to OUT/papers.json (`costs`).
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.errors import InputFileError, InvalidValueError, MissingPackageError, ModelError, PosbiasError
from posbias.events import Event, OnEvent
from posbias.files import need_writable
from posbias.papers.costs import Costs, Spent, effort_covers, shared_out
from posbias.papers.registry import PaperStudy, find_studies, minutes_text
from posbias.papers.theorems import INSTANCES, STATEMENTS, statements_of, tried_already, try_statements

log = logging.getLogger(__name__)
TRIED = {"quick": INSTANCES, "full": 1000}
"""Instances of a numbered statement."""
AT_HAND = ("tiny-alibi",)
"""The models that come with posbias, for when another cannot be had."""
FURTHER_TEXTS = "fig4"
"""The figure of Herasimchyk et al. 2026 that needs a second text: here the first with its tokens shuffled."""


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

    `effort` is quick or full; `models` are those of Herasimchyk et al. 2026 (none: those at hand), `configs` a
    folder of the authors' rollout files; `engine` does the training and the statements (none: the cores here),
    of which each is tried on `instances` (none: as the effort says).
    """

    folder: Path
    effort: str
    models: tuple[str, ...]
    configs: Path | None
    engine: Any
    instances: int | None
    on_event: OnEvent | None

    @property
    def tries(self) -> int:
        """Instances of a numbered statement."""
        return TRIED[self.effort] if self.instances is None else self.instances

    @property
    def options(self) -> dict[str, Any]:
        """What, beside the effort, results of measured models depend on."""
        return {"models": list(self.models), "configs": None if self.configs is None else str(self.configs)}


Outcome = tuple[Iterable[Spent], Mapping[str, str]]
"""What the studies of a part took, and, by name, why others were left out."""
Maker = Callable[[Asked, Sequence[PaperStudy]], Outcome]


def make_all(
    folder: str | Path,
    names: str | Iterable[str] = (),
    *,
    effort: str = "quick",
    models: Sequence[str] = (),
    configs: str | Path | None = None,
    engine: Any = None,
    again: bool = False,
    instances: int | None = None,
    on_event: OnEvent | None = None,
) -> Ran:
    """Make every study of `names` (papers or studies; none: all) that `folder` has not, and write what each took.

    The arguments are those of `Asked`; `again` makes even what is there (of cells that are kept). What it will
    cost is logged first. Raises `InvalidValueError` for an unknown name or effort, a model given twice or a folder
    of configurations that is none, `OutputFileError` before any work if `folder` cannot be written, and
    KeyboardInterrupt on Ctrl-C, saying what is kept. What else goes wrong is in `Ran.failed`.
    """
    began, folder = time.monotonic(), Path(folder)
    wanted = list(dict.fromkeys(part for study in find_studies(names) for part in _without_captions(study)))
    place = None if configs is None else Path(configs)
    asked = Asked(folder, effort, tuple(models), place, engine, instances, on_event)
    _check(asked)
    costs = Costs(folder / "papers.json", effort, asked.options)
    missing = [study for study in wanted if again or not _finished(study, asked, costs)]
    found = [study.key for study in wanted if study not in missing]
    log.info(_announcement(missing, len(found), effort))
    made: list[str] = []
    left_out: dict[str, str] = {}
    failed: dict[str, str] = {}
    try:
        for studies, make in _parts(missing):
            try:
                spent, reasons = make(asked, studies)
            except Exception as error:
                # the other parts are to be made all the same; what went wrong is said now and at the end
                told = str(error) if isinstance(error, PosbiasError) else f"{type(error).__name__}: {error}"
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
        kept = f"{len(made) + len(found)} of {len(wanted)} studies are kept in {folder}"
        detail = f" ({stopped})" if str(stopped) else ""
        raise KeyboardInterrupt(f"{kept}, the same command goes on from there{detail}") from None
    finally:
        costs.save()
    return Ran(tuple(made), tuple(found), left_out, failed, time.monotonic() - began, costs.path)


def make_study(study: PaperStudy, folder: str | Path, **options: Any) -> Ran:
    """Make one study, whatever is there already (cells that are kept are used); options as in `make_all`.

    Raises as `make_all`, and what `Ran.failed` would say as `PosbiasError`.
    """
    ran = make_all(folder, study.key, again=True, **options)
    if ran.failed:
        raise PosbiasError("; ".join(dict.fromkeys(ran.failed.values())))
    return ran


def _check(asked: Asked) -> None:
    if asked.effort not in TRIED:
        raise InvalidValueError(f"effort: {asked.effort!r} given, quick or full needed")
    need_writable(asked.folder / "papers.json")
    if asked.configs is not None and not asked.configs.is_dir():
        raise InvalidValueError(f"configs: {asked.configs} is no folder, one with the authors' files needed")
    twice = [name for name in asked.models if asked.models.count(name) > 1]
    if twice:
        raise InvalidValueError(f"models: {twice[0]} given twice, once needed")


def _finished(study: PaperStudy, asked: Asked, costs: Costs) -> bool:
    """Whether a study is there with the effort asked for, and, of measured models, the same ones."""
    if study.name == STATEMENTS:
        try:
            return tried_already(asked.folder, study.paper, asked.tries) is not None
        except InputFileError:
            return False  # trying them says what is wrong
    state = study.state(asked.folder)
    if not state.made or not effort_covers(state.effort, asked.effort):
        return False
    return study.needs != "models" or costs.options_of(study.key) == asked.options


def _announcement(missing: Sequence[PaperStudy], found: int, effort: str) -> str:
    costs = [getattr(study, effort) for study in missing]
    if not costs:
        return f"everything is there ({found} studies)"
    long = minutes_text(sum(cost.minutes for cost in costs))
    total = f"{len(missing)} studies to make at the {effort} effort: at most {long} on {costs[0].machine}"
    return f"{total}, less where they share cells" + (f"; {found} are there already" if found else "")


def _without_captions(study: PaperStudy) -> list[PaperStudy]:
    return find_studies([f"{study.paper}/{part}" for part in study.parts]) if study.parts else [study]


# --- the parts ---------------------------------------------------------------------------------------------


def _parts(missing: Sequence[PaperStudy]) -> Iterator[tuple[list[PaperStudy], Maker]]:
    """Studies that are made together, and what makes them."""
    figures = [study for study in missing if study.name != STATEMENTS]
    yield from (([study], _statements) for study in missing if study not in figures)
    yield from (([study], _kim) for study in figures if study.paper == "kim2026")
    measured = [study for study in figures if study.paper == "herasimchyk2026"]
    together = {
        _herasimchyk: [study for study in measured if study.name != FURTHER_TEXTS],
        _further_texts: [study for study in measured if study.name == FURTHER_TEXTS],
        _wu: [study for study in figures if study.paper == "wu2025"],
    }
    yield from ((studies, make) for make, studies in together.items() if studies)


def _statements(asked: Asked, studies: Sequence[PaperStudy]) -> Outcome:
    """The numbered statements of a paper."""
    began, heard, paper = time.monotonic(), Event(0), studies[0].paper

    def on_event(event: Event) -> None:
        nonlocal heard
        heard = event
        if asked.on_event:
            asked.on_event(event)

    options: dict[str, Any] = {"instances": asked.tries, "engine": asked.engine, "on_event": on_event}
    tried = try_statements(asked.folder, [paper], **options)
    # one that could not be tried was to do as well, and is neither
    found = len(statements_of([paper])) - int(heard.total or 0)
    return [Spent(STATEMENTS, time.monotonic() - began, len(tried) - found, found)], {}


def _kim(asked: Asked, studies: Sequence[PaperStudy]) -> Outcome:
    from posbias.papers.kim2026 import STUDIES, reproduce

    began, (name,), total = time.monotonic(), (study.name for study in studies), 0.0
    samples = STUDIES[name].effort[asked.effort]

    def on_event(event: Event) -> None:
        nonlocal total
        total = event.total or 0.0
        if asked.on_event:
            asked.on_event(event)

    reproduce(name, out=asked.folder / "kim2026", samples=samples, on_event=on_event)
    made = round(total / samples)
    return [Spent(name, time.monotonic() - began, made, len({*STUDIES[name].cells}) - made)], {}


def _herasimchyk(asked: Asked, studies: Sequence[PaperStudy]) -> Outcome:
    from posbias.papers.herasimchyk2026 import MODELS

    if asked.models:
        return _measured(asked, studies, asked.models)
    try:
        return _measured(asked, studies, MODELS)
    except (ModelError, MissingPackageError) as error:
        log.warning("%s; going on with %s alone", error, ", ".join(AT_HAND))
        return _measured(asked, studies, AT_HAND)


def _further_texts(asked: Asked, studies: Sequence[PaperStudy]) -> Outcome:
    """Figure 4, by default of the small model alone: a second text doubles what has to be measured."""
    return _measured(asked, studies, asked.models or AT_HAND, scramble=True)


def _measured(asked: Asked, studies: Sequence[PaperStudy], models: Sequence[str], **options: Any) -> Outcome:
    from posbias.papers.herasimchyk2026 import reproduce
    from posbias.papers.herasimchyk2026.printed import TOKENS

    made = reproduce(
        [study.name for study in studies],
        out=asked.folder / "herasimchyk2026",
        models=() if tuple(models) == ("none",) else models,
        configs=asked.configs,
        quick=asked.effort == "quick",
        on_event=asked.on_event,
        **options,
    )
    needs = {
        name: [key for key in made.results.cells if key.tokens == TOKENS or name in ("fig1", FURTHER_TEXTS)]
        for name in made.made
    }
    alone = {name: study.seconds for name, study in made.made.items()}
    return shared_out(alone, made.seconds, needs, dict.fromkeys(made.measured, 1.0)), made.left_out


def _wu(asked: Asked, studies: Sequence[PaperStudy]) -> Outcome:
    from posbias.papers.wu2025 import STUDIES, reproduce
    from posbias.papers.wu2025.settings import EFFORT
    from posbias.training.cells import find_cell

    out, effort = asked.folder / "wu2025", EFFORT[asked.effort]
    needs = {study.name: STUDIES[study.name].cells for study in studies}
    settings = dict.fromkeys(setting for cells in needs.values() for setting in cells)
    new = [one for one in settings if find_cell(out / "cells", effort.experiment(one)) is None]
    made = reproduce([*needs], out=out, effort=effort, engine=asked.engine, on_event=asked.on_event)
    trained = {setting: made.results[setting].trained.cost.get("seconds", 1.0) for setting in new}
    alone = {name: study.seconds for name, study in made.made.items()}
    return shared_out(alone, made.seconds, needs, trained), {}
