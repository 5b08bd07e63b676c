"""All three papers, from what is cheap to what is dear: statements, Kim, Herasimchyk, Wu.

    from posbias.papers.everything import make_all

    ran = make_all("results", say=print)
    print(ran.failed, ran.seconds)

What is made with at least the effort asked for is skipped, unless other models or rollout files are asked for. A
part that fails does not stop the others. What each study took goes to OUT/papers.json (`costs`).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.errors import InvalidValueError, PosbiasError
from posbias.files import need_writable
from posbias.papers import parts
from posbias.papers.costs import Costs, effort_covers
from posbias.papers.parts import FURTHER_TEXTS, Asked, Progress
from posbias.papers.registry import STATEMENTS, PaperStudy, find_studies, minutes_text
from posbias.papers.theorems import tried_already


@dataclass(frozen=True)
class Ran:
    """What a run made, what was there, what there was nothing for, what failed; what it took in seconds."""

    made: tuple[str, ...]
    found: tuple[str, ...]
    left_out: Mapping[str, str]
    failed: Mapping[str, str]
    seconds: float
    costs: Path


def make_all(
    folder: str | Path,
    names: str | Iterable[str] = (),
    *,
    quick: bool = True,
    models: Sequence[str] = (),
    configs: str | Path | None = None,
    engine: Any = None,
    again: bool = False,
    instances: int | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Ran:
    """Make every study of `names` (papers or studies; none: all) that `folder` has not, and write what each took.

    The arguments are those of `Asked`; `again` makes even what is there (of cells that are kept). Before it starts
    it says through `say` what it will cost. Raises `InvalidValueError` for an unknown name, a model given twice or
    a folder of configurations that is none, `OutputFileError` before any work if `folder` cannot be written;
    KeyboardInterrupt on Ctrl-C, saying what is kept. What else goes wrong is in `Ran.failed`.
    """
    began, folder = time.monotonic(), Path(folder)
    wanted = list(dict.fromkeys(part for one in find_studies(names) for part in _parts(one)))
    asked = Asked(
        folder,
        quick,
        tuple(models),
        None if configs is None else Path(configs),
        engine,
        instances,
        progress or (lambda unit, done, wanted: None),
        say or (lambda line: None),
    )
    _check(asked)
    run = parts.Run(asked, Costs(folder / "papers.json", asked.effort, asked.options))
    missing = [one for one in wanted if again or not _finished(one, run)]
    run.found += [one.key for one in wanted if one not in missing]
    asked.say(_announcement(missing, run.found, asked.effort))
    try:
        run.part([one for one in missing if one.name == STATEMENTS], parts.statements)
        for one in _of(missing, "kim2026"):
            run.part([one], parts.kim)
        residual = _of(missing, "herasimchyk2026")
        run.part([one for one in residual if one.name != FURTHER_TEXTS], parts.herasimchyk)
        run.part([one for one in residual if one.name == FURTHER_TEXTS], parts.further_texts)
        run.part(_of(missing, "wu2025"), parts.wu)
    except KeyboardInterrupt as stopped:
        kept = f"{len(run.made) + len(run.found)} of {len(wanted)} studies are kept in {folder}"
        detail = f" ({stopped})" if str(stopped) else ""
        raise KeyboardInterrupt(f"{kept}, the same command goes on from there{detail}") from None
    finally:
        run.costs.save()
    return Ran(
        tuple(run.made), tuple(run.found), run.left_out, run.failed, time.monotonic() - began, run.costs.path
    )


def make_study(study: PaperStudy, folder: str | Path, **options: Any) -> Ran:
    """Make one study, whatever is there already (cells that are kept are used); options as in `make_all`.

    Raises as `make_all`, and what `Ran.failed` would say as `PosbiasError`.
    """
    ran = make_all(folder, study.key, again=True, **options)
    if ran.failed:
        raise PosbiasError("; ".join(dict.fromkeys(ran.failed.values())))
    return ran


def _check(asked: Asked) -> None:
    need_writable(asked.folder / "papers.json")
    if asked.configs is not None and not asked.configs.is_dir():
        raise InvalidValueError(f"configs: {asked.configs} is no folder, one with the authors' files needed")
    twice = [one for one in asked.models if asked.models.count(one) > 1]
    if twice:
        raise InvalidValueError(f"models: {twice[0]} given twice, once needed")


def _finished(study: PaperStudy, run: parts.Run) -> bool:
    """Whether a study is there with the effort asked for, and, of measured models, the same ones."""
    asked = run.asked
    if study.name == STATEMENTS:
        return tried_already(asked.folder, study.paper, asked.tries) is not None
    state = study.state(asked.folder)
    if not state.made or not effort_covers(state.effort, asked.effort):
        return False
    return study.needs != "models" or run.costs.options_of(study.key) == asked.options


def _announcement(missing: Sequence[PaperStudy], found: Sequence[str], effort: str) -> str:
    costs = [getattr(one, effort) for one in missing]
    if not costs:
        return f"everything is there ({len(found)} studies)"
    long = minutes_text(sum(one.minutes for one in costs))
    total = f"{len(missing)} studies to make at the {effort} effort: at most {long} on {costs[0].machine}"
    return f"{total}, less where they share cells" + (f"; {len(found)} are there already" if found else "")


def _of(studies: Sequence[PaperStudy], paper: str) -> list[PaperStudy]:
    return [one for one in studies if one.paper == paper and one.name != STATEMENTS]


def _parts(study: PaperStudy) -> list[PaperStudy]:
    return find_studies([f"{study.paper}/{part}" for part in study.parts]) if study.parts else [study]
