"""The commands that draw the papers' figures again."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from posbias.cli.asking import Flag
from posbias.cli.speaking import COMPILING, Again, Json, Many, Whole, answer_with, bar_of, notice, say
from posbias.cli.training import cluster_of
from posbias.errors import InvalidValueError
from posbias.events import Event, OnEvent
from posbias.terminal import table

paper = App(
    name="paper", help="Draw a paper's figures again, and check what it states.", help_format="plaintext"
)


@paper.command
def kim2026(
    *what: str,
    quick: Flag = False,
    full: Flag = False,
    samples: Many | None = None,
    reading: Literal["corrected", "published"] | None = None,
    out: Path = Path("results/kim2026"),
    seed: Whole = 0,
    threads: Whole | None = None,
    again: Again = False,
    json: Json = False,
) -> None:
    """Draw the figures of Kim et al. 2026, every number with its error, and judge what the paper says of them.

    Figures are written as SVG and PNG with a page (.md) and JSON: numbers, closed forms, claims; beside them
    table.csv and table.json. Finished simulations are kept, and used by every figure that needs them; after Ctrl-C
    the same command goes on from there.

    Parameters
    ----------
    what
        fig1 to fig7, section3 (the printed probabilities), or all, the default; claims prints the paper's claims
        with their verdicts. The anisotropies of fig2, fig5, fig6 and fig7 are ours: the paper's text gives none.
    quick
        A million draws of all embeddings in every panel, the default.
    full
        Ten million, as in the paper.
    samples
        Any number of draws, such as 1e5, in the place of --quick or --full. Simulations that have more are used as
        they are.
    reading
        The closed form drawn as a line in fig2 and fig7: corrected (the default) or as published. The other is
        dashed.
    out
        The folder to write to.
    seed
        Seed of the draw.
    threads
        Cores to use; the result is the same for any number. Default: all.
    again
        Simulate even what is there already.
    json
        Print JSON on stdout.
    """
    if quick and full:
        raise InvalidValueError("full: given together with --quick, one of the two needed")
    if samples is not None and (quick or full):
        effort = "--full" if full else "--quick"
        raise InvalidValueError(f"samples: {samples:,} given together with {effort}, one of the two needed")
    drawn = without_claims(what, "kim2026", out, json)
    if drawn is None:
        return
    from posbias.papers.kim2026 import reproduce
    from posbias.papers.kim2026.models import EFFORT

    many = samples if samples is not None else EFFORT["full" if full else "quick"]
    settings: dict[str, Any] = {"samples": many, "seed": seed, "threads": threads, "reading": reading}
    with _watched() as on_event:
        made = reproduce(drawn or "all", out=out, again=again, on_event=on_event, **settings)
    answer_with(made.as_dict() if json else None, lambda: _lines(made))


def without_claims(what: Sequence[str], paper: str, out: Path, json: bool) -> tuple[str, ...] | None:
    """What is to be made; None after `claims`, which prints the claims of a paper whose results are in `out`.

    Raises `InvalidValueError` for claims among other names: one answer at a time.
    """
    if "claims" not in what:
        return tuple(what)
    if len(what) > 1:
        raise InvalidValueError(f"what: claims given together with {len(what) - 1} more, claims alone needed")
    from posbias.cli.claiming import print_claims

    print_claims(out.parent, [paper], at={paper: out}, json=json)
    return None


@paper.command
def wu2025(
    *what: str,
    full: Annotated[bool, Parameter(name="--full", negative="--quick")] = False,
    out: Path = Path("results/wu2025"),
    device: str = "cpu",
    threads: Whole | None = None,
    ray: str | None = None,
    gpus_per_cell: float = 0,
    again: Again = False,
    json: Json = False,
) -> None:
    """Train the retrieval experiments of Wu et al. 2025 and draw their figures, each with its claims judged.

    Figures are written as SVG and PNG, beside a page with the gap of every cell (.md) and the same as JSON.
    Trained cells are kept, and used by every figure that needs them; after Ctrl-C the same command goes on.

    Parameters
    ----------
    what
        The figures, fig2 to fig24, or all; claims prints the paper's claims with their verdicts. Default: fig2.
    full
        The paper's effort (--full: 5 networks per cell, 100,000 iterations, 10,000 test sequences) or minutes
        of a laptop (--quick, the default: 3 networks, 1,000 to 2,500 iterations, 2,000 sequences).
    out
        The folder to write to.
    device
        Where to train: cpu, cuda.
    threads
        Cores to use. Default: all.
    ray
        Train on a Ray cluster instead, a core for each cell: auto, HOST:PORT, ray://HOST:PORT or local.
    gpus_per_cell
        With --ray and --device cuda, the GPUs for each cell; 0.25 trains four side by side on one.
    again
        Train even what is there already.
    json
        Print JSON on stdout.
    """
    drawn = without_claims(what, "wu2025", out, json)
    if drawn is None:
        return
    engine = cluster_of(ray, threads)
    from posbias.papers.wu2025 import make

    with bar_of("iteration") as progress:
        made = make(
            drawn or ("fig2",),
            out,
            quick=not full,
            again=again,
            device=device,
            workers=threads,
            engine=engine,
            gpus_per_cell=gpus_per_cell,
            progress=progress,
            say=say,
        )
    answer_with(made.as_dict() if json else None, lambda: _trained_lines(made))


def _trained_lines(made: Any) -> list[str]:
    """The gaps of all cells, the claims of every figure, and the files."""
    lines = table(*made.table())
    for name, claims in made.claims.items():
        lines += ["", name, *(f"  {claim}" for claim in claims)]
    return [*lines, "", *(f"file: {path}" for path in made.files)]


@contextmanager
def _watched() -> Iterator[OnEvent]:
    """A bar of samples that goes when they are drawn; before it, a notice of compiling."""
    with ExitStack() as compiling, ExitStack() as counting:
        compiling.enter_context(notice(COMPILING))
        bar = counting.enter_context(bar_of("sample"))

        def on_event(event: Event) -> None:
            compiling.close()
            if event.total:
                bar(event.done, event.total)  # type: ignore[arg-type]
            if event.done == event.total:
                counting.close()

        yield on_event


def _lines(made: Any) -> list[str]:
    """The recency probabilities behind the figures, the printed numbers beside ours, the claims, and the files."""
    from posbias.estimate import Estimate
    from posbias.papers.kim2026.models import describe
    from posbias.plots.recency import probability_text

    depth = max(model.depth for model in made.results)
    head = ["recency probability", "d", *(f"layer {layer + 1}" for layer in range(depth)), "samples"]
    rows = [
        [
            describe(model),
            str(model.dimension),
            *map(probability_text, result.recency_probability),
            f"{result.samples:,}",
        ]
        for model, result in made.results.items()
    ]
    lines = table(head, rows)
    if published := made.as_dict()["published"]:
        head = ["printed in the paper", "printed", "ours", "standard errors of the difference", "within 4"]
        rows = [
            [
                check["where"],
                f"{check['printed']:.4f}",
                probability_text(Estimate(check["value"], check["se"])),
                f"{check['deviation']:+.2f}",
                "yes" if check["holds"] else "no",
            ]
            for check in published
        ]
        lines += ["", *table(head, rows)]
    for name, claims in made.claims.items():
        lines += ["", name, *(f"  {claim}" for claim in claims)]
    files = [f"figure: {path}" for path in made.figures] + [f"page: {path}" for path in made.files]
    return [*lines, "", *files, f"table: {made.table}"]
