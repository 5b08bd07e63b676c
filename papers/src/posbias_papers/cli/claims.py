"""`posbias paper claims`: every claim with its verdict."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, log, progress
from posbias.core.errors import InvalidValueError, PosbiasError
from posbias.core.lazy import need

if TYPE_CHECKING:
    from posbias.profiles.claims import Judged
    from posbias_papers.everything import Ran

WIDTH = 110
"""Columns of a claim in words."""


@shared.options
class Options:
    """Which claims, and what is made for them.

    Parameters
    ----------
    paper
        wu2025, herasimchyk2026, kim2026, or studies such as wu2025/fig2; several with commas. Default: all.
    verdict
        Only the claims that hold, fail or are undecided.
    instances
        Random instances of a statement. Default: 200, or what statements/ has if that is more.
    effort
        Make first what is missing: quick (minutes) or full (the papers' effort). Default: make nothing.
    """

    paper: shared.Names = ()
    verdict: Literal["holds", "fails", "undecided"] | None = None
    out: shared.Results = shared.RESULTS
    instances: shared.Whole | None = None
    effort: Annotated[shared.Effort | None, Parameter(show_default=False)] = None
    workers: shared.Workers = None
    json: shared.Json = False


def claims(*, options: Options = Options()) -> None:
    """Print every claim of the three papers with its number, its verdict, and why.

    Numbered statements are tried on random and adversarial instances (kept in statements/); claims of figures
    and tables are those of the results in --out, or of recorded results, which come along, where these are of more
    effort. What has not been made is undecided and says what makes it.
    """
    _claims(options)


def _claims(options: Options) -> None:
    ran = None
    if options.effort is not None:
        engine = shared.engine(options.workers)
        ran = make_missing(options.out, options.paper, options.effort, engine=engine)
    print_claims(options)
    if ran is not None:
        refuse_failures(ran)


def make_missing(out: Path, studies: Sequence[str], effort: str | int, **settings: Any) -> "Ran":
    """Make with a bar what is missing; settings and errors as of `make_all`."""
    from posbias_papers.everything import make_all

    with progress() as on_event:
        return make_all(out, studies, effort=effort, on_event=on_event, **settings)


def print_claims(options: Options, at: dict[str, Path] | None = None) -> None:
    """Answer with the claims of some papers; `at` are folders of papers that lie outside `options.out`."""
    from posbias.profiles.claims import count, tally
    from posbias_papers.cli.answers import PaperClaims
    from posbias_papers.collect import INSTANCES, collect

    with progress() as on_event:
        judged = collect(
            options.out,
            papers=options.paper,
            instances=INSTANCES if options.instances is None else options.instances,
            engine=shared.engine(options.workers),
            at=at,
            on_event=on_event,
        )
    shown = [claim for claim in judged if options.verdict in (None, claim.verdict)]
    answer = PaperClaims.of(
        claims=[claim.as_dict() for claim in shown],
        counts=count(judged),
        tallies={paper: tally(own) for paper, own in by_paper(judged).items()},
    )
    answer_with(answer, lambda: _claim_lines(judged, shown), options.json)


def claims_alone(what: Sequence[str], paper: str, out: Path, json: bool) -> bool:
    """Whether `what` is `claims`; then those of the paper whose results are in `out` are printed.

    Raises `InvalidValueError` for claims among other names: one answer at a time.
    """
    if "claims" not in what:
        return False
    if len(what) > 1:
        raise InvalidValueError(f"what: claims given together with {len(what) - 1} more, claims alone needed")
    print_claims(Options(paper=(paper,), out=out.parent, json=json), {paper: out})
    return True


def answer_reproduction(
    paper: str,
    what: Sequence[str] | str,
    options: Any,
    lines: Callable[[Any], list[str]],
    waiting: str | None = None,
    **settings: Any,
) -> None:
    """Make some of a paper with a bar, and answer with what was made; `settings` as of its `reproduce`."""
    from posbias.core.store import dump_json
    from posbias_papers.cli.answers import reproduced

    need("matplotlib", work="drawing", extra="report")
    reproduce = import_module(f"posbias_papers.{paper}").reproduce
    with progress(waiting) as on_event:
        made = reproduce(what, out=options.out, again=options.rerun, on_event=on_event, **settings)
    if made.stand_in:
        log.info(made.stand_in)
    answer_with(
        reproduced(paper).model_validate_json(dump_json(made.as_dict())), lambda: lines(made), options.json
    )


def claim_lines(made: Any, files: Iterable[str]) -> list[str]:
    """The claims of every figure that was made, and the files."""
    lines: list[str] = []
    for name, claims in made.claims.items():
        lines += ["", name, *(f"  {claim}" for claim in claims)]
    return [*lines, "", *files]


def refuse_failures(ran: "Ran") -> None:
    """Raise `PosbiasError` for parts that failed."""
    if ran.failed:
        told = "; ".join(f"{key}: {message}" for key, message in ran.failed.items())
        raise PosbiasError(f"{len(ran.failed)} of the studies could not be made: {told}")


def by_paper(judged: "Iterable[Judged]") -> "dict[str, list[Judged]]":
    """Claims by the key of their paper."""
    papers: dict[str, list[Judged]] = {}
    for claim in judged:
        papers.setdefault(claim.paper, []).append(claim)
    return papers


def count_words(judged: "Iterable[Judged]") -> str:
    """'12 hold, 3 fail, 4 undecided; of ours 2 hold, 0 fail, 1 undecided'."""
    from posbias.profiles.claims import tally

    words = {"holds": "hold", "fails": "fail", "undecided": "undecided"}
    told = {
        whose: ", ".join(f"{number} {words[kind]}" for kind, number in counts.items())
        for whose, counts in tally(judged).items()
    }
    return f"{told['paper']}; of ours {told['ours']}"


def _claim_lines(judged: "Sequence[Judged]", shown: "Sequence[Judged]") -> list[str]:
    """Claims under their papers, each with its number and why; counts are of all, shown or not."""
    from posbias.core.sources import cite

    lines: list[str] = []
    for key, own in by_paper(judged).items():
        lines += [f"{cite(key).short}: {count_words(own)}", ""]
        for claim in (claim for claim in shown if claim.paper == key):
            lines += [f"  {claim.mark:10s} {claim.id}  {_number(claim)}".rstrip()]
            about = claim.claim
            whose = about.place if about.provenance == "paper" else f"ours, beside {about.place}"
            whose += f"; counted as {about.alias_of}" if about.alias_of else ""
            lines += [*wrapped([f"{claim.sentence} ({whose})", claim.why], 13), ""]
    return [*lines, f"{len(judged)} claims: {count_words(judged)}"]


def _number(claim: "Judged") -> str:
    number, se = claim.estimate.value, claim.estimate.se
    if number != number or claim.study.endswith("/statements"):
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
