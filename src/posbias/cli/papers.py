"""The commands that draw the papers' figures again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from posbias.cli.speaking import COMPILING, Again, Json, Many, Whole, answer_with, bar_of, notice, say
from posbias.terminal import table

paper = App(
    name="paper", help="Draw a paper's figures again, and check what it states.", help_format="plaintext"
)


@paper.command
def kim2026(
    what: str = "all",
    *,
    samples: Many = 10_000_000,
    reading: Literal["corrected", "published"] | None = None,
    out: Path = Path("results/kim2026"),
    seed: Whole = 0,
    threads: Whole | None = None,
    again: Again = False,
    json: Json = False,
) -> None:
    """Draw the figures of Kim et al. 2026, every number with its error, and check those that the paper prints.

    Figures are written as SVG and PNG, beside table.csv and table.json. Finished simulations are kept, and used
    by every figure that needs them; after Ctrl-C the same command goes on from there.

    Parameters
    ----------
    what
        The figure, fig1 to fig7, or all. The anisotropies of fig2, fig5, fig6 and fig7 are our choice: the
        paper's text does not give them.
    samples
        Draws of all embeddings in every panel, such as 1e6. Simulations that have more are used as they are.
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
    from posbias.papers import kim2026 as module

    settings: dict[str, Any] = {"samples": samples, "seed": seed, "threads": threads, "reading": reading}
    with _watched() as (progress, tell):
        made = module.reproduce(what, out=out, again=again, progress=progress, say=tell, **settings)
    answer_with(made.as_dict() if json else None, lambda: _lines(made, module.describe))


@paper.command
def wu2025(
    *what: str,
    full: Annotated[bool, Parameter(name="--full", negative="--quick")] = False,
    out: Path = Path("results/wu2025"),
    device: str = "cpu",
    threads: Whole | None = None,
    again: Again = False,
    json: Json = False,
) -> None:
    """Train the retrieval experiments of Wu et al. 2025 and draw their figures, each with its claims judged.

    Figures are written as SVG and PNG, beside a page with the gap of every cell (.md) and the same as JSON.
    Trained cells are kept, and used by every figure that needs them; after Ctrl-C the same command goes on.

    Parameters
    ----------
    what
        The figures, fig2 to fig24, or all. Default: fig2.
    full
        The paper's effort (--full: 5 networks per cell, 100,000 iterations, 10,000 test sequences) or minutes
        of a laptop (--quick, the default: 3 networks, 1,000 to 2,500 iterations, 2,000 sequences).
    out
        The folder to write to.
    device
        Where to train: cpu, cuda.
    threads
        Cores to use. Default: all.
    again
        Train even what is there already.
    json
        Print JSON on stdout.
    """
    from posbias.papers.wu2025 import make

    with bar_of("iteration") as progress:
        made = make(
            what or ("fig2",),
            out,
            quick=not full,
            again=again,
            device=device,
            workers=threads,
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
def _watched() -> Iterator[tuple[Callable[[int, int], None], Callable[[str], None]]]:
    """A bar of samples that goes when they are drawn, and `say`; before either, a notice of compiling."""
    with ExitStack() as compiling, ExitStack() as counting:
        compiling.enter_context(notice(COMPILING))
        bar = counting.enter_context(bar_of("sample"))

        def progress(done: int, wanted: int) -> None:
            compiling.close()
            bar(done, wanted)
            if done == wanted:
                counting.close()

        def tell(line: str) -> None:
            compiling.close()
            say(line)

        yield progress, tell


def _lines(made: Any, describe: Any) -> list[str]:
    """The recency probabilities behind the figures, the printed numbers beside ours, and the files."""
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
    if made.checks:
        head = ["printed in the paper", "printed", "ours", "deviation", "within 4 standard errors"]
        rows = [
            [
                check.where,
                check.printed,
                probability_text(check.value),
                f"{check.deviation:+.2f} of {check.se:.1g}",
                "holds" if check.holds else "fails",
            ]
            for check in made.checks
        ]
        lines += ["", *table(head, rows)]
    return [*lines, "", *(f"figure: {path}" for path in made.figures), f"table: {made.table}"]
