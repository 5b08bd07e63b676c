"""Every claim of the three papers with its verdict: statements, figures and tables, and what was not made.

    from posbias.papers.collect import collect

    for ruling in collect("results"):
        print(ruling.verdict, ruling.paper, ruling.claim, ruling.why)

A numbered statement holds when no random or adversarial instance is a counterexample to it as printed; the number
is its slack (`posbias.verify`). A claim of a figure or table is taken from its JSON. A row of a printed table is
held against the same row here, where the model was measured. What has not been made is undecided, as is what can
not be read; either says what to do. `why` is the reason computed and, after it, the explanation that somebody
wrote for that claim (`explanations`).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posbias.errors import InputFileError
from posbias.execution import Engine
from posbias.papers.explaining import explanation_of
from posbias.papers.registry import STATEMENTS, PaperStudy, find_studies
from posbias.papers.results import read_result
from posbias.papers.rows import row_rulings
from posbias.papers.ruling import Ruling
from posbias.papers.tried import INSTANCES, Record, try_statements

__all__ = ["Ruling", "collect", "counts"]
OWN_NUMBERS = "(the paper's own numbers)"
"""How claims begin that are about no model of ours."""


def collect(
    folder: str | Path,
    *,
    papers: Sequence[str] = (),
    instances: int = INSTANCES,
    engine: Engine | None = None,
    at: Mapping[str, Path] | None = None,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Ruling]:
    """All rulings on the claims of some papers (none: all), in the order of the registry.

    Statements are tried on at least `instances` instances unless OUT/statements.json has that (`try_statements`,
    which `engine`, `progress` and `say` are for); figures and tables are read from `folder`, or, of a paper in
    `at`, from there. Raises `InvalidValueError` for an unknown paper or instances < 1, `OutputFileError` when the
    statements cannot be kept.
    """
    folder, say = Path(folder), say or (lambda line: None)
    studies = find_studies(papers)
    stated = [one.paper for one in studies if one.name == STATEMENTS]
    options: dict[str, Any] = {"engine": engine, "progress": progress, "say": say}
    tried = try_statements(folder, stated, instances=instances, **options) if stated else {}
    rulings: list[Ruling] = []
    for study in studies:
        if study.name == STATEMENTS:
            rulings += _of_statements(study, tried)
        elif not study.parts:
            rulings += _of_study(study, folder, at, say)
    return rulings


def counts(rulings: Sequence[Ruling]) -> dict[str, int]:
    """How many hold, fail and are undecided."""
    verdicts = [one.verdict for one in rulings]
    return {kind: verdicts.count(kind) for kind in ("holds", "fails", "undecided")}


# --- statements --------------------------------------------------------------------------------------------


def _of_statements(study: PaperStudy, tried: Mapping[str, Record]) -> Iterator[Ruling]:
    from posbias.verify import STATEMENTS as ALL

    for statement in ALL:
        if statement.source != study.paper:
            continue
        key = f"{study.paper}/{slug(statement.name)}"
        sentence = f"{statement.name}: {statement.published.claim}"
        more = {"statement": statement.key}
        record = tried.get(statement.key)
        if record is None:
            why = f"could not be tried; `posbias verify {statement.key}` says why"
            yield Ruling(key, study.paper, sentence, math.nan, math.nan, "undecided", why, study.key, more)
            continue
        published, amended = record["published"], record["amended"]
        more |= {"instances": published["instances"]}
        if published["survived"]:
            note = statement.note.removeprefix("Holds.").strip()
            why = f"{_survived(published)}. {note}".strip()
        else:
            more |= {"stands": statement.amended.claim if statement.amended else ""}
            why = f"counterexample found, margin {_slack(published['slack'])}. {statement.note}"
            if statement.amended is not None and amended is not None and amended["survived"]:
                why += f" What stands: {statement.amended.claim} ({_survived(amended)})."
        number = float(published["slack"])
        yield Ruling(key, study.paper, sentence, number, math.nan, record["verdict"], why, study.key, more)


def _survived(tried: Mapping[str, Any]) -> str:
    least = _slack(tried["slack"]) if tried["slack"] > 1e-9 else "0 to rounding"
    return (
        f"no counterexample in {tried['instances']:,} random and adversarial instances, least margin {least}"
    )


def _slack(slack: float) -> str:
    return f"{slack:.2g}".replace("-", "−")


def slug(name: str) -> str:
    """'Theorem 4.5, critical distance' as 'theorem-4.5-critical-distance'."""
    words = name.lower().replace("§", "section ")
    return "-".join("".join(sign if sign.isalnum() or sign == "." else " " for sign in words).split())


# --- figures and tables ------------------------------------------------------------------------------------


def _of_study(
    study: PaperStudy, folder: Path, at: Mapping[str, Path] | None, say: Callable[[str], None]
) -> Iterator[Ruling]:
    path = study.file(folder, at)
    data: dict[str, Any] | None = None
    trouble = f"not made here; {study.made_by}"
    if path.exists():
        try:
            data = read_result(path, study.name)
        except InputFileError as error:
            trouble = f"{error}; {study.made_by}"
            say(f"{error}; not used")
    rows = list(row_rulings(study, data, trouble))
    if data is None:
        if not all(one.verdict != "undecided" for one in rows) or not rows:
            claim = f"{study.title}: {study.question}"
            yield Ruling(study.key, study.paper, claim, math.nan, math.nan, "undecided", trouble, study.key)
    else:
        for place, claim in enumerate(data["claims"], start=1):
            yield _of_claim(f"{study.key}/{place}", study, claim, data)
    yield from rows


def _of_claim(key: str, study: PaperStudy, claim: Mapping[str, Any], data: Mapping[str, Any]) -> Ruling:
    effort, sentence, verdict = str(data.get("effort", "")), str(claim["claim"]), claim["verdict"]
    stand_in = "" if sentence.startswith(OWN_NUMBERS) else str(data.get("stand_in", ""))
    written = explanation_of(key, study.key, sentence) if verdict != "holds" else ""
    parts = [str(claim["why"])]
    if stand_in:
        parts.append(stand_in)
    if verdict == "undecided" and effort == "quick" and not stand_in:
        parts.append(f"quick effort; `{study.command} --full` gives it more")
    why = "; ".join(parts)
    more = {"effort": effort, "effects": claim.get("effects", []), "explanation": written}
    more |= {"stand_in": stand_in} if stand_in else {}
    more |= {name: claim[name] for name in claim if name not in (*Ruling.PLAIN, "effects")}
    return Ruling(
        key,
        study.paper,
        sentence,
        _number(claim["number"]),
        _number(claim["se"]),
        verdict,
        f"{why}. {written}" if written else why,
        study.key,
        more,
    )


def _number(given: Any) -> float:
    return float(given) if isinstance(given, int | float) else math.nan
