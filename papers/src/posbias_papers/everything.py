"""All three papers, from fastest to slowest: statements, Kim, Herasimchyk, Wu.

    from posbias_papers.everything import make_all

    ran = make_all("results")
    print(ran.failed, ran.seconds)

What is made with at least the effort asked for is skipped, unless other models or rollout files are asked for.
What is on record at a greater effort is drawn from that, and nothing is computed for it. A part that fails does
not stop the others. What each study took goes to OUT/papers.json: work that studies share (training, measuring)
is counted to the first of them that needs it.
"""

import datetime
import importlib
import logging
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from posbias.core.errors import (
    InputFileError,
    InvalidValueError,
    MissingPackageError,
    ModelError,
    PosbiasError,
    shortened,
    whole,
)
from posbias.core.files import need_writable
from posbias.core.formats import VERSION, parse_json, save_json, undamaged, versions_here
from posbias.core.machine import cores
from posbias.core.packages import missing as missing_package
from posbias.core.packages import need
from posbias.core.progress import OnEvent
from posbias_papers.registry import find_studies
from posbias_papers.reproduction import Spent
from posbias_papers.study import Basis, Recorded, Study, minutes_text
from posbias_papers.theorems import STATEMENTS, Statements, tried_already, try_statements

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
class Wanted:
    """What all parts of a run are made with; the fields are the arguments of `make_all`."""

    folder: Path
    effort: str | int
    models: tuple[str, ...]
    configs: Path | None
    engine: Any
    again: bool
    on_event: OnEvent | None

    def amount(self, study: Study) -> Any:
        """What is spent on each cell of a study; of one that is on record at as much effort or more, that."""
        if isinstance(self.effort, int):
            return study.of_number(self.effort)
        record = self.record(study)
        return study.effort[self.effort] if record is None else record.effort

    def record(self, study: Study) -> Recorded | None:
        """What is on record of all of a study's cells, at as much effort or more, unless all is to be made
        again."""
        if self.again or isinstance(self.effort, int) or not study.cells:
            return None
        record, wanted = study.recorded(study), study.effort[self.effort]
        if record is None or not record.whole:
            return None
        least = Basis(*wanted.amount(study.cells)) if hasattr(wanted, "amount") else Basis(samples=wanted)
        return record if record.basis >= least else None

    @property
    def options(self) -> dict[str, Any]:
        """What results of measured models depend on besides the effort."""
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
    on_event: OnEvent | None = None,
) -> Ran:
    """Make every study of `names` (papers or studies; none: all) that `folder` has not, and write what each took.

    `effort` is quick, full, or a number in the unit of all studies; `models` are those of Herasimchyk et al.
    2026 (none: those at hand), `configs` a folder of the authors' rollout files; `engine` does the training and
    the statements (none: the cores here); `again` makes anew what was made before, and uses no recorded results.
    What is missing, and its cost, is logged first. Raises `InvalidValueError` for an unknown name or effort, a
    number where there are several units, a model given twice or a folder of configurations that is none,
    `OutputFileError` before any work if `folder` cannot be written, `MissingPackageError` where nothing can be
    made without a package, and KeyboardInterrupt on Ctrl-C, saying what is kept. What else goes wrong is in
    `Ran.failed`.
    """
    began = time.monotonic()
    studies = list(dict.fromkeys(part for study in find_studies(names) for part in study.made_of))
    place = None if configs is None else Path(configs)
    wanted = Wanted(Path(folder), effort, tuple(models), place, engine, again, on_event)
    _check(wanted, studies)
    costs = wanted.folder / "papers.json"
    known = {} if again else read_costs(costs)
    missing = [study for study in studies if again or not _finished(study, wanted, known)]
    found = [study.key for study in studies if study not in missing]
    log.info(_announcement(wanted, missing, len(found)))
    made: list[str] = []
    left_out: dict[str, str] = {}
    failed: dict[str, str] = {}
    for part in _parts(wanted, missing):
        try:
            spent, reasons = _make(wanted, part)
        except KeyboardInterrupt as stopped:
            kept = f"{len(made) + len(found)} of {len(studies)} studies are kept in {folder}"
            detail = f" ({stopped})" if str(stopped) else ""
            raise KeyboardInterrupt(f"{kept}; the same command goes on from there{detail}") from None
        except Exception as error:
            # the other parts are to be made all the same; what went wrong is said now and at the end
            failed |= dict.fromkeys((study.key for study in part), _message(error))
            log.error("%s: %s", ", ".join(study.key for study in part), _message(error))
            continue
        paper = part[0].paper
        made += [f"{paper}/{one.name}" for one in spent]
        left_out |= {f"{paper}/{name}": f"left out, {reason}" for name, reason in reasons.items()}
        _note_costs(costs, paper, spent, wanted)
    return Ran(tuple(made), tuple(found), left_out, failed, time.monotonic() - began, costs)


def _check(wanted: Wanted, studies: Sequence[Study]) -> None:
    units = dict.fromkeys(unit for study in studies for unit in study.unit.split(", "))
    if isinstance(wanted.effort, int):
        whole("effort", wanted.effort, 1)
    if wanted.effort not in ("quick", "full") and (isinstance(wanted.effort, str) or len(units) > 1):
        several = f": there are several units ({', '.join(units)})" if len(units) > 1 else ""
        raise InvalidValueError(f"effort: expected quick or full, got {shortened(wanted.effort)}{several}")
    need_writable(wanted.folder / "papers.json")
    if any(not isinstance(study, Statements) for study in studies):
        need("matplotlib", work="drawing", extra="report")
    needing = [
        one.needs == "torch" or (one.needs == "models" and wanted.models != ("none",)) for one in studies
    ]
    if (
        all(needing)
        and find_spec("torch") is None
        and not any(one.file(wanted.folder).exists() for one in studies)
    ):
        need("torch", work="each of these studies")
    if wanted.configs is not None and not wanted.configs.is_dir():
        raise InvalidValueError(f"configs: expected a folder with the authors' files, got {wanted.configs}")
    if twice := [name for name in wanted.models if wanted.models.count(name) > 1]:
        raise InvalidValueError(f"models: expected each once, got {twice[0]} twice")
    if wanted.models:
        from posbias_papers.herasimchyk2026.measure import check_models

        check_models(wanted.models)


def _finished(study: Study, wanted: Wanted, costs: Mapping[str, Any]) -> bool:
    """Whether a study is there with the effort asked for, and, of measured models, the same ones."""
    if isinstance(study, Statements):
        try:
            return tried_already(wanted.folder, study.paper, wanted.amount(study)) is not None
        except InputFileError:
            return False  # trying them says what is wrong
    state = study.state(wanted.folder)
    enough = ("full", wanted.effort, getattr(wanted.amount(study), "name", ""))
    if not state.made or isinstance(wanted.effort, int) or state.effort not in enough:
        return False
    return study.needs != "models" or costs.get(study.key, {}).get("options") == wanted.options


def _announcement(wanted: Wanted, missing: Sequence[Study], found: int) -> str:
    """What is missing and what it costs."""
    recorded = [study for study in missing if wanted.record(study)]
    rest = [study for study in missing if study not in recorded]
    parts = [f"{found} studies are there"] if found else []
    parts += [f"{len(recorded)} to draw from recorded results"] if recorded else []
    if rest and isinstance(wanted.effort, str):
        long = minutes_text(sum(getattr(study, wanted.effort).minutes for study in rest))
        machine = rest[0].quick.machine
        parts.append(f"{len(rest)} to make at the {wanted.effort} effort, at most {long} on {machine}")
    return "; ".join(parts)


def _parts(wanted: Wanted, missing: Iterable[Study]) -> list[list[Study]]:
    """Studies that are made together, from fastest to slowest: those of a paper that get the same effort."""
    papers = ("kim2026", "herasimchyk2026", "wu2025")
    parts: dict[tuple[Any, ...], list[Study]] = {}
    for study in missing:
        stated = isinstance(study, Statements)
        place = study.key if stated else study.key == FURTHER_TEXTS
        of_paper = -1 if stated else papers.index(study.paper)
        parts.setdefault((of_paper, place, str(wanted.amount(study))), []).append(study)
    return [parts[part] for part in sorted(parts, key=lambda part: part[:2])]


def _make(wanted: Wanted, studies: Sequence[Study]) -> tuple[Sequence[Spent], Mapping[str, str]]:
    """Make the studies of a part: what each took, and, by name, why others were left out."""
    paper, amount, began = studies[0].paper, wanted.amount(studies[0]), time.monotonic()
    if isinstance(studies[0], Statements):
        tried = tried_already(wanted.folder, paper, amount) or try_statements(
            wanted.folder, [paper], instances=amount, engine=wanted.engine, on_event=wanted.on_event
        )
        return [Spent(STATEMENTS, time.monotonic() - began, len(tried), 0)], {}
    reproduce = importlib.import_module(f"posbias_papers.{paper}").reproduce
    names = [study.name for study in studies]
    options: dict[str, Any] = {"out": wanted.folder / paper, "on_event": wanted.on_event}
    if paper == "kim2026":
        options |= {"samples": amount}
    elif paper == "wu2025":
        options |= {"effort": amount, "engine": wanted.engine, "recorded": not wanted.again}
    else:
        return _measure(wanted, reproduce, names, options)
    reproduction = reproduce(names, **options)
    return [*reproduction.spent], reproduction.left_out


def _measure(
    wanted: Wanted, reproduce: Any, names: Sequence[str], options: Mapping[str, Any]
) -> tuple[Sequence[Spent], Mapping[str, str]]:
    """The same of language models; one that was not asked for by name and cannot be had is done without."""
    from posbias_papers.herasimchyk2026 import MODELS

    further = names == [FURTHER_TEXTS.partition("/")[2]]
    models = wanted.models or (AT_HAND if further else MODELS)
    options = dict(options) | {
        "scramble": further,
        "configs": wanted.configs,
        "quick": wanted.effort != "full",
    }
    options |= {"models": () if models == ("none",) else models}
    options |= {"prompts": wanted.effort if isinstance(wanted.effort, int) else None}
    try:
        reproduction = reproduce(names, **options)
    except (ModelError, MissingPackageError) as error:
        if wanted.models or models == AT_HAND:
            raise
        log.warning("%s; going on with %s alone", error, ", ".join(AT_HAND))
        reproduction = reproduce(names, **options | {"models": AT_HAND})
    return [*reproduction.spent], reproduction.left_out


def _message(error: Exception) -> str:
    absent = missing_package(error) if isinstance(error, ModuleNotFoundError) else None
    if absent is not None or isinstance(error, PosbiasError):
        return str(absent or error)
    return f"{type(error).__name__}: {error}"


# --- costs -------------------------------------------------------------------------------------------------


def read_costs(path: Path) -> dict[str, dict[str, Any]]:
    """What each study took, by key, as papers.json has it; none of a file that is damaged or of another
    version."""
    try:
        kept = undamaged(parse_json(path), path)
        return kept["studies"] if kept["version"] == VERSION else {}
    except (InputFileError, KeyError):
        return {}


def _note_costs(path: Path, paper: str, spent: Iterable[Spent], wanted: Wanted) -> None:
    """Put what studies took on record, in place of what they took before. Raises `OutputFileError`."""
    studies = read_costs(path)
    finished = datetime.datetime.now().isoformat(timespec="seconds")
    shared = {"effort": str(wanted.effort), "options": wanted.options, "finished": finished}
    for one in spent:
        counts = {"seconds": round(one.seconds, 3), "cells_made": one.made, "cells_found": one.found}
        studies[f"{paper}/{one.name}"] = counts | shared
    runs = []
    for key in dict.fromkeys(key.partition("/")[0] for key in studies):
        own = [one for name, one in studies.items() if name.startswith(f"{key}/")]
        efforts = " and ".join(dict.fromkeys(one["effort"] for one in own))
        minutes = round(sum(one["seconds"] for one in own) / 60, 1)
        runs.append({"paper": key, "effort": efforts, "cells": sum(one["cells_made"] for one in own)})
        runs[-1]["minutes"] = minutes
    about = {"version": VERSION, "machine": f"{cores()} cores, {platform.machine()}"}
    packages = [name for name in ("scipy", "numba", "torch", "transformers", "matplotlib") if find_spec(name)]
    about |= {"versions": versions_here(tuple(packages)), "runs": runs, "studies": studies}
    save_json(about, path)
