"""`posbias paper extensions|variants`: our own studies, which belong to no paper."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, progress
from posbias.core.errors import one_of
from posbias.core.packages import need
from posbias.core.progress import Event
from posbias.core.terminal import table

if TYPE_CHECKING:
    from posbias_papers.simulation import VariantResult

_RERUN = "Compute cells again that are on record or kept."


def extensions(
    name: str | None = None,
    *,
    out: shared.Results = shared.RESULTS,
    workers: shared.Workers = None,
    rerun: Annotated[shared.Rerun, Parameter(help=_RERUN)] = False,
    json: shared.Json = False,
) -> None:
    """Write the tables and the figure of one of our own studies to OUT/extensions, or list them.

    Parameters
    ----------
    name
        designed, ordering, predictors or influence. Default: list them.
    """
    from posbias_papers.cli.answers import OwnStudy, PaperExtension, PaperExtensions
    from posbias_papers.extensions import EXTENSIONS, make, on_record

    if name is None:
        head = ["name", "question", "page", "minutes", "cells on record"]
        rows = [
            [
                *(one.name, one.question, one.document, f"{one.minutes[0]:g}"),
                f"{len(on_record(one.cells))} of {len(one.cells)}",
            ]
            for one in EXTENSIONS.values()
        ]
        own = [OwnStudy.of(one, page=one.document, minutes=one.minutes[0]) for one in EXTENSIONS.values()]
        answer = PaperExtensions.of(extensions=own)
        answer_with(answer, lambda: table(head, rows), json)
        return
    one_of("name", name, EXTENSIONS)
    need("matplotlib", work="drawing", extra="report")
    with progress() as on_event:
        engine = shared.engine(workers)
        how: dict[str, Any] = {"rerun": rerun, "engine": engine, "on_event": on_event}
        files = make(EXTENSIONS[name], out / "extensions", **how)
    answer = PaperExtension.of(name=name, files=files)
    answer_with(answer, lambda: [*files[0].read_text().splitlines(), *map(str, files)], json)


# --- variants ----------------------------------------------------------------------------------------------


@shared.options
class VariantOptions:
    """How much is drawn.

    Parameters
    ----------
    networks
        Networks drawn for each variant.
    inputs
        Inputs that each network is given.
    """

    networks: shared.Whole = 100
    inputs: shared.Whole = 200
    seed: shared.Seed = 0
    json: shared.Json = False


def variants(*names: str, options: VariantOptions = VariantOptions()) -> None:
    """Add parts of a real layer to the simulation, drawn at initialisation: does the recency bias survive?

    Projections, heads, a feed-forward block, rotary encoding and ALiBi, singly and together. Every variant is
    given many networks, each with many inputs: the mean over networks says whether there is a preference they
    share, the spread whether each has one of its own.

    Parameters
    ----------
    names
        Variants, such as tied or rope. Default: all; an unknown name lists them.
    """
    from posbias_papers.cli.answers import SimulateVariants, Variant
    from posbias_papers.simulation import VARIANTS, simulate_variant

    chosen = {one_of("variant", name, VARIANTS): VARIANTS[name] for name in names or VARIANTS}
    networks, results = options.networks, {}
    with progress() as on_event:
        for place, (name, variant) in enumerate(chosen.items()):

            def drawn(event: Event, before: int = place * networks) -> None:
                on_event(Event(before + event.done, len(chosen) * networks, event.unit))

            results[name] = simulate_variant(
                variant, networks, options.inputs, seed=options.seed, on_event=drawn
            )
    answer = SimulateVariants.of(variants=[Variant.of(one, name=key) for key, one in results.items()])
    answer_with(answer, lambda: variants_table(results), options.json)


def variants_table(results: "Mapping[str, VariantResult]") -> list[str]:
    """Recency probabilities of variants by layer: the mean over networks, and how far networks lie apart."""
    rows = []
    for name, result in results.items():
        for label, part in result.parts(name):
            both = zip(part.recency_probability, part.variance, strict=True)
            rows.append([label, *(f"{one}{_spread(apart.value)}" for one, apart in both)])
    head = ["variant", *(f"layer {layer}" for layer in range(1, max(map(len, rows))))]
    lines = table(head, [row + [""] * (len(head) - len(row)) for row in rows])
    return [*lines, "", "recency probability ± standard error (standard deviation over networks); ½: none"]


def _spread(variance: float) -> str:
    return f" ({max(variance, 0.0) ** 0.5:.3f})" if variance == variance else ""
