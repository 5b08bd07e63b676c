"""`posbias paper claims`: every claim with its verdict; and what the commands on all papers share."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posbias.cli.asking import Flag, Names
from posbias.cli.papers import paper
from posbias.cli.speaking import Json, Whole, answer_with, bar, bar_of, say
from posbias.errors import InvalidValueError, PosbiasError

if TYPE_CHECKING:
    from posbias.claims import Judged
    from posbias.papers.everything import Ran

OUT = Path("results")
WIDTH = 110
"""Columns of a claim in words."""


@paper.command
def claims(
    *,
    paper: Names = (),
    verdict: Literal["holds", "fails", "undecided"] | None = None,
    out: Path = OUT,
    instances: Whole | None = None,
    quick: Flag = False,
    full: Flag = False,
    workers: Whole | None = None,
    json: Json = False,
) -> None:
    """Print every claim of the three papers with its number, its verdict, and why.

    Numbered statements are tried on random and adversarial instances (kept in statements/); claims of figures
    and tables are those of the results in --out. What has not been made is undecided and says what makes it.

    Parameters
    ----------
    paper
        wu2025, herasimchyk2026, kim2026, or studies such as wu2025/fig2; several with commas. Default: all.
    verdict
        Only the claims that hold, fail or are undecided.
    out
        The folder of results.
    instances
        Random instances of a statement. Default: 200, or what statements/ has if that is more.
    quick
        Make first what is missing, at the effort of minutes.
    full
        Make first what is missing, at the papers' effort.
    workers
        Processes that try statements, and train what is missing. Default: the cores.
    json
        Print JSON on stdout.
    """
    if quick and full:
        raise InvalidValueError("full: given together with --quick, one of the two needed")
    ran = None
    if quick or full:
        from posbias.papers.everything import make_all

        with bars() as progress:
            ran = make_all(out, paper, quick=quick, engine=engine(workers), progress=progress, say=say)
    print_claims(out, paper, verdict, instances, workers, None, json)
    if ran is not None:
        refuse_failures(ran)


def print_claims(
    out: Path,
    papers: Sequence[str],
    verdict: str | None = None,
    instances: int | None = None,
    workers: int | None = None,
    at: dict[str, Path] | None = None,
    json: bool = False,
) -> None:
    """Answer with the claims of some papers; `at` are folders of papers that lie outside `out`."""
    from posbias.papers.collect import INSTANCES, collect

    with bar() as on_event:
        rulings = collect(
            out,
            papers=papers,
            instances=INSTANCES if instances is None else instances,
            engine=engine(workers),
            at=at,
            on_event=on_event,
        )
    shown = [one for one in rulings if verdict in (None, one.verdict)]
    answer = {"claims": [one.as_dict() for one in shown], "counts": counts(rulings)} if json else None
    answer_with(answer, lambda: _claim_lines(rulings, shown))


def engine(workers: int | None, ray: str | None = None) -> Any:
    """The engine asked for; None where neither is, for what each part takes by itself."""
    from posbias.execution import engine_of

    return None if workers is None and ray is None else engine_of(workers, ray)


def refuse_failures(ran: "Ran") -> None:
    """Raise `PosbiasError` for parts that failed."""
    if ran.failed:
        told = "; ".join(f"{key}: {message}" for key, message in ran.failed.items())
        raise PosbiasError(f"{len(ran.failed)} of the studies could not be made: {told}")


def counts(rulings: "Sequence[Judged]") -> dict[str, int]:
    """How many hold, fail and are undecided."""
    from posbias.claims import count

    return {str(verdict): number for verdict, number in count(rulings).items()}


def count_words(rulings: "Sequence[Judged]") -> str:
    """'12 hold, 3 fail, 4 undecided'."""
    words = {"holds": "hold", "fails": "fail", "undecided": "undecided"}
    return ", ".join(f"{number} {words[kind]}" for kind, number in counts(rulings).items())


def _claim_lines(rulings: "Sequence[Judged]", shown: "Sequence[Judged]") -> list[str]:
    """Claims under their papers, each with its number and why; counts are of all, shown or not."""
    from posbias.sources import cite

    lines: list[str] = []
    for key in dict.fromkeys(one.paper for one in rulings):
        own = [one for one in rulings if one.paper == key]
        lines += [f"{cite(key).short}: {count_words(own)}", ""]
        for one in (one for one in shown if one.paper == key):
            lines += [f"  {one.verdict:10s} {one.id}  {_number(one)}".rstrip()]
            lines += [*wrapped([one.sentence, one.why], 13), ""]
    return [*lines, f"{len(rulings)} claims: {count_words(rulings)}"]


def _number(one: "Judged") -> str:
    number, se = one.estimate.value, one.estimate.se
    if number != number:
        return ""
    error = f" ± {se:.2g}" if se == se else ""
    # a number that is zero has no sign
    return f"{number + 0.0:.4g}{error}".replace("-", "−")


def wrapped(texts: Sequence[str], indent: int) -> list[str]:
    """Texts in lines of `WIDTH` columns."""
    return [
        line
        for text in texts
        for line in textwrap.wrap(
            text,
            WIDTH,
            initial_indent=" " * indent,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


@contextmanager
def bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar at a time, of whatever unit comes; a finished one goes."""
    with ExitStack() as opened:
        bars: dict[str, Callable[[int, int | None], None]] = {}

        def progress(unit: str, done: int, wanted: int) -> None:
            if unit not in bars:
                opened.close()
                bars.clear()
                bars[unit] = opened.enter_context(bar_of(unit))
            bars[unit](done, wanted)
            if done >= wanted:
                opened.close()
                bars.clear()

        yield progress
