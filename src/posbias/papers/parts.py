"""The parts of a run of all papers: each makes some studies and notes what they took.

What fails in a part is kept for the end; the others are made all the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posbias.errors import MissingPackageError, ModelError, PosbiasError
from posbias.events import Event
from posbias.papers.costs import Costs, cells_in, tokens_of
from posbias.papers.registry import PaperStudy
from posbias.papers.theorems import INSTANCES, try_statements

TRIED = {"quick": INSTANCES, "full": 1000}
"""Instances of a numbered statement."""
AT_HAND = ("tiny-alibi",)
"""The models that come with posbias, for when another cannot be had."""
FURTHER_TEXTS = "fig4"
"""The figure of Herasimchyk et al. 2026 that needs a second text: here the first with its tokens shuffled."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Asked:
    """What is asked of all parts.

    `models` are those of Herasimchyk et al. 2026 (none: those at hand), `configs` a folder of the authors' rollout
    files; `engine` does the training and the statements (none: the cores here). `progress` hears (unit, done,
    to do).
    """

    folder: Path
    quick: bool = True
    models: tuple[str, ...] = ()
    configs: Path | None = None
    engine: Any = None
    instances: int | None = None
    progress: Progress = field(default=lambda unit, done, wanted: None)
    say: Callable[[str], None] = field(default=lambda line: None)

    @property
    def effort(self) -> str:
        """quick or full."""
        return "quick" if self.quick else "full"

    def hear(self, unit: str) -> Callable[[int, int], None]:
        """`progress` of one unit."""
        return lambda done, wanted: self.progress(unit, done, wanted)

    @property
    def tries(self) -> int:
        """Instances of a numbered statement."""
        return TRIED[self.effort] if self.instances is None else self.instances

    @property
    def options(self) -> dict[str, Any]:
        """What, beside the effort, results of measured models depend on."""
        return {"models": list(self.models), "configs": None if self.configs is None else str(self.configs)}


@dataclass
class Run:
    """A run while it goes: what was asked, what it cost so far, what became of each study."""

    asked: Asked
    costs: Costs
    made: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def part(
        self, studies: Sequence[PaperStudy], make: "Callable[[Run, Sequence[PaperStudy]], None]"
    ) -> None:
        """Do a part; what fails is kept for the end."""
        if not studies:
            return
        try:
            make(self, studies)
        except Exception as error:
            # the other parts are to be made all the same; what went wrong is said now and at the end
            told = str(error) if isinstance(error, PosbiasError) else f"{type(error).__name__}: {error}"
            named = [one.key for one in studies if one.key not in self.made]
            self.failed |= dict.fromkeys(named, told)
            self.asked.say(f"{', '.join(named)}: {told}")
        finally:
            self.costs.save()


def statements(run: Run, studies: Sequence[PaperStudy]) -> None:
    asked = run.asked
    for one in studies:
        with run.costs.timed(one.key) as cells:

            def on_event(event: Event, cells: dict[str, int] = cells) -> None:
                cells["made"] = int(event.done)
                asked.progress("statement", int(event.done), int(event.total or 0))

            tried = try_statements(
                asked.folder,
                [one.paper],
                instances=asked.tries,
                engine=asked.engine,
                on_event=on_event,
            )
            cells["found"] = len(tried) - cells["made"]
        run.made.append(one.key)


def kim(run: Run, studies: Sequence[PaperStudy]) -> None:
    from posbias.papers.kim2026 import STUDIES, reproduce

    asked = run.asked
    out = asked.folder / "kim2026"
    for one in studies:
        before = cells_in(out / "cells", ".json")
        with run.costs.timed(one.key) as cells:
            reproduce(
                one.name,
                out=out,
                samples=STUDIES[one.name].effort[asked.effort],
                on_event=lambda event: asked.progress("sample", int(event.done), int(event.total or 0)),
            )
            cells["made"] = len(cells_in(out / "cells", ".json") - before)
            cells["found"] = max(0, one.quick.cells - cells["made"])
        run.made.append(one.key)


def herasimchyk(run: Run, studies: Sequence[PaperStudy]) -> None:
    models = run.asked.models
    if models:
        _measured(run, studies, models)
        return
    from posbias.papers.herasimchyk2026 import MODELS

    try:
        _measured(run, studies, MODELS)
    except (ModelError, MissingPackageError) as error:
        run.asked.say(f"{error}; going on with {', '.join(AT_HAND)} alone")
        _measured(run, studies, AT_HAND)


def further_texts(run: Run, studies: Sequence[PaperStudy]) -> None:
    """Figure 4, by default of the small model alone: a second text doubles what has to be measured."""
    _measured(run, studies, run.asked.models or AT_HAND, scramble=True)


def _measured(run: Run, studies: Sequence[PaperStudy], models: Sequence[str], **options: Any) -> None:
    from posbias.papers.herasimchyk2026 import make

    asked = run.asked
    out = asked.folder / "herasimchyk2026"
    before = cells_in(out / "cells", ".nc")
    made = make(
        [one.name for one in studies],
        out,
        models=() if tuple(models) == ("none",) else models,
        configs=asked.configs,
        quick=asked.quick,
        on_event=lambda event: asked.progress(event.unit, int(event.done), int(event.total or 0)),
        **options,
    )
    cells = cells_in(out / "cells", ".nc")
    needs = {name: [cell for cell in cells if _needed(name, cell)] for name in made.made}
    alone = {name: study.seconds for name, study in made.made.items()}
    common = made.seconds - sum(alone.values())
    run.costs.shared("herasimchyk2026", alone, common, needs, dict.fromkeys(cells - before, 1.0))
    run.made += [one.key for one in studies if one.name in made.made]
    run.left_out |= {f"herasimchyk2026/{name}": f"left out, {why}" for name, why in made.left_out.items()}


def _needed(study: str, cell: str) -> bool:
    """Whether a study is made of a measured cell, by the length in its file's name."""
    from posbias.papers.herasimchyk2026.printed import TOKENS

    return study in ("fig1", FURTHER_TEXTS) or tokens_of(cell) == TOKENS


def wu(run: Run, studies: Sequence[PaperStudy]) -> None:
    from posbias.papers.wu2025 import STUDIES, reproduce
    from posbias.papers.wu2025.settings import EFFORT
    from posbias.training.shorthand import name_of

    asked = run.asked
    out, effort = asked.folder / "wu2025", EFFORT[asked.effort]
    before = {name.removesuffix(".nc") for name in cells_in(out / "cells", ".nc")}
    made = reproduce(
        [one.name for one in studies],
        out=out,
        effort=effort,
        engine=asked.engine,
        on_event=lambda event: asked.progress("iteration", int(event.done), int(event.total or 0)),
    )
    names = {setting: name_of(effort.experiment(setting)) for setting in made.results}
    seconds = {names[setting]: one.trained.cost.get("seconds", 1.0) for setting, one in made.results.items()}
    alone = {name: one.seconds for name, one in made.made.items()}
    run.costs.shared(
        "wu2025",
        alone,
        made.seconds - sum(alone.values()),
        {one.name: [names[setting] for setting in STUDIES[one.name].cells] for one in studies},
        {name: seconds[name] for name in seconds if name not in before},
    )
    run.made += [one.key for one in studies]
