"""`posbias heads`: heads by what they attend to."""

from pathlib import Path

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.core.terminal import table
from posbias.reports import answers, plots


def heads(
    measurement: Path,
    *,
    last: shared.Whole = 1,
    top: shared.Whole = 10,
    plot: shared.Plot = None,
    json: shared.Json = False,
) -> None:
    """Rank attention heads by what they attend to: sink (key 0), first keys, middle, last keys, the query's own.

    Parameters
    ----------
    measurement
        The .nc of `posbias measure --head-kernels`.
    last
        Queries at the end whose attention counts, in the mean.
    top
        Heads in each column of the table; --json has all.
    plot
        Draw a map of layers and heads for each part to this file (.png, .svg or .pdf).
    """
    from posbias.core.errors import counted
    from posbias.profiles.heads import head_shares, ranked
    from posbias.profiles.measurements import load_measurement

    counted("top", top)
    shared.check_targets(None, plot, measurement)
    shares = head_shares(load_measurement(measurement), last)
    if plot is not None:
        plots.save_figure(plots.heads_figure(shares), plot)
    parts = {part: ranked(held) for part, held in shares.items()}
    columns = [[f"{t}.{h} {share:.1%}" for t, h, share in held[:top]] for held in parts.values()]
    rows = [[str(place), *row] for place, row in enumerate(zip(*columns, strict=True), start=1)]
    words = f"layer.head, share of its attention; means over prompts, last queries: {last}"
    answer = answers.Heads.of(file=measurement, last=last, parts=parts)
    answer_with(answer, lambda: [words, *table(["", *parts], rows)], json)
