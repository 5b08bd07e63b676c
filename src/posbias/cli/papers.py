"""The command that draws the papers' figures again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from posbias.cli.speaking import COMPILING, Again, Json, Many, Whole, answer_with, bar_of, notice, say
from posbias.terminal import table


def paper(
    name: str,
    what: str = "all",
    *,
    samples: Many = 10_000_000,
    reading: Literal["corrected", "published"] | None = None,
    out: Path | None = None,
    seed: Whole = 0,
    threads: Whole | None = None,
    again: Again = False,
    json: Json = False,
) -> None:
    """Draw a paper's figures again, every number with its error, and check those that the paper prints.

    Figures are written as SVG and PNG, beside table.csv and table.json. Finished simulations are kept, and used
    by every figure that needs them; after Ctrl-C the same command goes on from there.

    Parameters
    ----------
    name
        Citation key of the paper: kim2026.
    what
        The figure, fig1 to fig7, or all. The anisotropies of fig2, fig5, fig6 and fig7 are our choice: the
        paper's text does not give them.
    samples
        Draws of all embeddings in every panel, such as 1e6. Simulations that have more are used as they are.
    reading
        The closed form drawn as a line in fig2 and fig7: corrected (the default) or as published. The other is
        dashed.
    out
        The folder to write to. Default: results/NAME.
    seed
        Seed of the draw.
    threads
        Cores to use; the result is the same for any number. Default: all.
    again
        Simulate even what is there already.
    json
        Print JSON on stdout.
    """
    from posbias.papers import find_paper

    module = find_paper(name)
    settings: dict[str, Any] = {"samples": samples, "seed": seed, "threads": threads, "reading": reading}
    with _watched() as (progress, tell):
        made = module.reproduce(
            what, out=out or Path("results") / name, again=again, progress=progress, say=tell, **settings
        )
    answer_with(made.as_dict() if json else None, lambda: _lines(made, module.describe))


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
