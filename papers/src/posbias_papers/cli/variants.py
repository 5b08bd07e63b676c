"""`posbias paper variants`: parts of a real layer added to the simulation."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from posbias.cli import options as shared
from posbias.cli.output import answer_with, progress
from posbias.core.arguments import one_of
from posbias.core.events import Event
from posbias.core.text_tables import table

if TYPE_CHECKING:
    from posbias_papers.simulation.variants import Variant, VariantResult


@shared.options
class Model:
    """What is changed in every variant.

    Parameters
    ----------
    dimension
        Dimension of the embeddings, in every variant. Default: what the variant says, mostly 64.
    anisotropy
        Their anisotropy, in every variant. Default: what the variant says, mostly 0.5.
    tokens
        Number of embeddings. Default: 10.
    depth
        Number of layers. Default: 4.
    """

    dimension: Annotated[shared.Whole | None, Parameter(name=["--d", "--dimension"])] = None
    anisotropy: Annotated[float | None, Parameter(name=["--alpha", "--anisotropy"])] = None
    tokens: shared.Whole | None = None
    depth: Annotated[shared.Whole | None, Parameter(name=["--layers", "--depth"])] = None


@shared.options
class Options:
    """How much is drawn, and where the answer goes.

    Parameters
    ----------
    networks
        Networks drawn for each variant.
    inputs
        Inputs that each network is given.
    out
        Write the answer as JSON to this file.
    plot
        Draw the recency probabilities to this file (.png, .svg or .pdf).
    """

    networks: shared.Whole = 100
    inputs: shared.Whole = 200
    seed: shared.Seed = 0
    out: shared.Out | None = None
    plot: Path | None = None
    json: shared.Json = False


def variants(*names: str, model: Model = Model(), options: Options = Options()) -> None:
    """Add parts of a real layer to the simulation, drawn at initialisation: does the recency bias survive?

    Projections, heads, a feed-forward block, rotary encoding and ALiBi, singly and together. Every variant is
    given many networks, each with many inputs: the mean over networks says whether there is a preference they
    share, the spread whether each has one of its own.

    Parameters
    ----------
    names
        Variants, such as tied or rope. Default: all; an unknown name lists them.
    """
    from posbias_papers.simulation.variants import simulate_variant

    shared.check_targets(options.out, options.plot)
    chosen = _chosen(names, model)
    results: dict[str, Any] = {}
    with progress() as on_event:
        for number, (name, variant) in enumerate(chosen.items()):

            def drawn(event: Event, before: int = number * options.networks) -> None:
                on_event(Event(before + event.done, len(chosen) * options.networks, event.unit))

            results[name] = simulate_variant(
                variant, options.networks, options.inputs, seed=options.seed, on_event=drawn
            )
    rows = [{"name": name} | result.as_dict() for name, result in results.items()]
    if options.plot is not None:
        from posbias.reports import plots
        from posbias_papers.plots.variants import draw_variants

        figure = plots.new_figure(6.8, 1.6 + 0.32 * sum(1 + r.differs for r in results.values()))
        draw_variants(figure.subplots(), results)
        plots.save_figure(figure, options.plot)
    from posbias_papers.cli.answers import SimulateVariants

    answer = SimulateVariants.of(variants=rows)
    answer_with(answer, lambda: variants_table(results), options.json, options.out)


def _chosen(names: tuple[str, ...], model: Model) -> "dict[str, Variant]":
    """The variants of these names (none: all), with what is changed in each. Raises `InvalidValueError`."""
    from posbias_papers.simulation.variants import VARIANTS

    for name in names:
        one_of("variant", name, VARIANTS)
    changes = {name: number for name, number in vars(model).items() if number is not None}
    return {
        name: dataclasses.replace(VARIANTS[name], model=dataclasses.replace(VARIANTS[name].model, **changes))
        for name in names or VARIANTS
    }


def variants_table(results: "Mapping[str, VariantResult]") -> list[str]:
    """Recency probabilities of variants by layer: the mean over networks, and how far networks lie apart."""
    rows = []
    for name, result in results.items():
        for label, part in result.parts(name):
            cells = []
            for mean, variance in zip(part.recency_probability, part.variance, strict=True):
                spread = (
                    f" ({max(variance.value, 0.0) ** 0.5:.3f})" if variance.value == variance.value else ""
                )
                cells.append(f"{mean}{spread}")
            rows.append([label, *cells])
    head = ["variant", *(f"layer {layer + 1}" for layer in range(len(rows[0]) - 1))]
    lines = table(head, [row + [""] * (len(head) - len(row)) for row in rows])
    return [*lines, "", "recency probability ± standard error (standard deviation over networks); ½: none"]
