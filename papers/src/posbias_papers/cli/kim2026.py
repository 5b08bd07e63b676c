"""`posbias paper kim2026`: the figures of Kim et al. 2026."""

from pathlib import Path
from typing import Any, Literal

from posbias.cli import options as shared
from posbias.cli.output import COMPILING
from posbias.core.text_tables import table
from posbias_papers.cli.claims import answer_reproduction, claim_lines, claims_alone


@shared.options
class Options:
    """How much is drawn, and where it goes.

    Parameters
    ----------
    effort
        Draws of all embeddings in every panel: quick (a million), full (ten million, as in the paper), or a number
        such as 1e5. Simulations that have more are used as they are.
    reading
        The closed form drawn as a line in fig2 and fig7: corrected (the default) or as published. The other is
        dashed.
    alphas
        Anisotropies of fig2, fig5, fig6 and fig7, with commas: 0, which all are held against, then rising, below
        1. Default: 0,0.25,0.5,0.75,0.9, which are ours, as the paper's text gives none.
    out
        The folder to write to.
    """

    effort: shared.Effort = "quick"
    reading: Literal["corrected", "published"] | None = None
    alphas: shared.Numbers | None = None
    out: shared.Out = Path("results/kim2026")
    seed: shared.Seed = 0
    threads: shared.Threads = None
    rerun: shared.Rerun = False
    json: shared.Json = False


def kim2026(*what: str, options: Options = Options()) -> None:
    """Draw the figures of Kim et al. 2026, every number with its error, and judge what the paper says of them.

    Figures are written as SVG and PNG, each with its tidy table (.csv), a page (.md) and JSON. Finished
    simulations are kept, and used by every figure that needs them; after Ctrl-C the same command goes on.

    Parameters
    ----------
    what
        fig1 to fig7, section3 (the printed probabilities), or all, the default; claims prints the paper's claims
        with their verdicts. fig2, fig5, fig6 and fig7 show several anisotropies, --alphas.
    """
    if claims_alone(what, "kim2026", options.out, options.json):
        return
    from posbias_papers.kim2026.figures import EFFORT

    settings: dict[str, Any] = {name: getattr(options, name) for name in ("seed", "threads", "reading")}
    if options.alphas is not None:
        settings["alphas"] = options.alphas
    settings["samples"] = shared.amount(options.effort, EFFORT)
    answer_reproduction("kim2026", what or "all", options, _lines, COMPILING, **settings)


def _lines(made: Any) -> list[str]:
    """The recency probabilities behind the figures, the printed numbers beside ours, the claims, and the files."""
    from posbias.profiles.estimate import Estimate
    from posbias.reports.plots.recency import probability_text
    from posbias_papers.kim2026.figures import describe

    simulated = made.results
    depth = max((model.depth for model in simulated), default=0)
    head = ["recency probability", "d", *(f"layer {layer + 1}" for layer in range(depth)), "samples"]
    rows = [
        [
            describe(model),
            str(model.dimension),
            *map(probability_text, result.recency_probability),
            f"{result.samples:,}",
        ]
        for model, result in simulated.items()
    ]
    lines = table(head, rows) if rows else []
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
    files = [f"figure: {path}" for path in made.figures] + [f"page: {path}" for path in made.files]
    return [*lines, *claim_lines(made, files)]
