"""The commands that simulate: layernorm, variants."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from posbias.cli.speaking import COMPILING, Json, Many, Whole, answer_with, bar
from posbias.errors import InvalidValueError, nearest
from posbias.events import Event
from posbias.files import need_writable
from posbias.terminal import recency_table, variants_table

simulate = App(name="simulate", help="Simulate position bias in controlled cases.", help_format="plaintext")


@simulate.command
def layernorm(
    *,
    d: Annotated[Whole, Parameter(name=["--d", "--dimension"])] = 16,
    alpha: Annotated[float, Parameter(name=["--alpha", "--anisotropy"])] = 0.5,
    norm: Literal["layernorm", "rmsnorm", "none"] = "layernorm",
    residual: bool = False,
    layers: Annotated[Whole, Parameter(name=["--layers", "--depth"])] = 4,
    tokens: Whole = 10,
    order: Literal["pre", "post"] = "pre",
    temperature: float = 1.0,
    samples: Many | None = None,
    until_se: float | None = None,
    seed: Whole = 0,
    threads: Whole | None = None,
    engine: Literal["gram", "token_space"] = "gram",
    out: Path | None = None,
    plot: Path | None = None,
    json: Json = False,
) -> None:
    """Simulate the recency bias that a norm induces between random embeddings (Kim et al. 2026).

    Random embeddings pass through attention layers without parameters. The answer is the recency probability
    of each layer: how often a key scores higher than an earlier one, both before the query; ½ is no
    preference. Ctrl-C keeps what is counted so far and says how precise it is.

    Parameters
    ----------
    d
        Dimension of the embeddings.
    alpha
        Their anisotropy, the cosine of the angle between two of them: from 0 to below 1.
    norm
        What normalises a layer's input: layernorm, rmsnorm or none.
    residual
        Add a layer's input to its output.
    layers
        Number of layers.
    tokens
        Number of embeddings; at least 3.
    order
        Norm before attention (pre) or after it (post).
    temperature
        Divides the scores, beside the root of d.
    samples
        Draws of all embeddings, such as 1e7. Default: a million, or as many as --until-se takes.
    until_se
        Go on until every layer's recency probability has at most this standard error.
    seed
        Seed of the draw.
    threads
        Cores to use; the result is the same for any number. Default: all.
    engine
        gram (cost independent of d) or token_space (the plain simulation, on one core).
    out
        Write the answer as JSON to this file.
    plot
        Draw the mean scores of every layer to this file (.png, .svg or .pdf).
    json
        Print JSON on stdout.
    """
    _check_targets(out, plot)
    if tokens < 3:
        raise InvalidValueError(f"tokens: {tokens} given, at least 3 needed for a recency probability")
    from posbias.simulation import InterruptedSimulation, RecencyModel, simulate_recency

    model = RecencyModel(
        tokens=tokens,
        dimension=d,
        anisotropy=alpha,
        norm=norm,
        residual=residual,
        depth=layers,
        order=order,
        temperature=temperature,
    )
    interrupted: InterruptedSimulation | None = None
    with bar(COMPILING) as on_event:
        try:
            result = simulate_recency(
                model,
                samples,
                seed=seed,
                until_se=until_se,
                threads=threads,
                engine=engine,
                on_event=on_event,
            )
        except InterruptedSimulation as stopped:
            if stopped.result is None:
                raise KeyboardInterrupt("before the first samples were counted") from None
            result, interrupted = stopped.result, stopped
    _hand_over(result, out, plot, json, interrupted is not None)
    if interrupted is not None:
        worst = max(p.se for p in result.recency_probability)
        raise KeyboardInterrupt(
            f"{result.samples:,} samples are counted above, standard errors at most {worst:.2g}"
        )


@simulate.command
def variants(
    *names: str,
    d: Annotated[Whole | None, Parameter(name=["--d", "--dimension"])] = None,
    alpha: Annotated[float | None, Parameter(name=["--alpha", "--anisotropy"])] = None,
    tokens: Whole | None = None,
    layers: Annotated[Whole | None, Parameter(name=["--layers", "--depth"])] = None,
    networks: Whole = 100,
    inputs: Whole = 200,
    seed: Whole = 0,
    out: Path | None = None,
    plot: Path | None = None,
    json: Json = False,
) -> None:
    """Add parts of a real layer to the simulation, drawn at initialisation: does the recency bias survive?

    Projections, heads, a feed-forward block, rotary encoding and ALiBi, singly and together. Every variant is
    given many networks, each with many inputs: the mean over networks says whether there is a preference they
    share, the spread whether each has one of its own.

    Parameters
    ----------
    names
        Variants, such as tied or rope. Default: all; an unknown name lists them.
    d
        Dimension of the embeddings, in every variant. Default: what the variant says, mostly 64.
    alpha
        Their anisotropy, in every variant. Default: what the variant says, mostly 0.5.
    tokens
        Number of embeddings. Default: 10.
    layers
        Number of layers. Default: 4.
    networks
        Networks drawn for each variant.
    inputs
        Inputs that each network is given.
    seed
        Seed of the draw.
    out
        Write the answer as JSON to this file.
    plot
        Draw the recency probabilities to this file (.png, .svg or .pdf).
    json
        Print JSON on stdout.
    """
    import dataclasses

    from posbias.simulation import VARIANTS, simulate_variant

    _check_targets(out, plot)
    for name in names:
        if name not in VARIANTS:
            raise InvalidValueError(
                f"variant: {name!r} given, one of {', '.join(VARIANTS)} needed{nearest(name, VARIANTS)}"
            )
    given = {"dimension": d, "anisotropy": alpha, "tokens": tokens, "depth": layers}
    changes = {field: number for field, number in given.items() if number is not None}
    chosen = {name: VARIANTS[name] for name in names or VARIANTS}
    chosen = {
        name: dataclasses.replace(variant, model=dataclasses.replace(variant.model, **changes))
        for name, variant in chosen.items()
    }
    results: dict[str, Any] = {}
    with bar() as on_event:
        for number, (name, variant) in enumerate(chosen.items()):

            def drawn(event: Event, before: int = number * networks) -> None:
                on_event(Event(before + event.done, len(chosen) * networks, event.unit))

            results[name] = simulate_variant(variant, networks, inputs, seed=seed, on_event=drawn)
    answer = {"variants": [{"name": name} | result.as_dict() for name, result in results.items()]}
    if out is not None:
        from posbias.store import save_json

        save_json(answer, out)
    if plot is not None:
        from posbias import plots

        figure = plots.new_figure(6.8, 1.6 + 0.32 * sum(1 + r.differs for r in results.values()))
        plots.draw_variants(figure.subplots(), results)
        plots.save_figure(figure, plot)
    answer_with(answer if json else None, lambda: variants_table(results))


def _check_targets(out: Path | None, plot: Path | None) -> None:
    """Say what is known to be wrong with the files to be written before anything is drawn."""
    if plot is not None:
        from posbias.plots import check_kind

        check_kind(plot)
    for target in (out, plot):
        if target is not None:
            need_writable(target)


def _hand_over(result: Any, out: Path | None, plot: Path | None, json: bool, interrupted: bool) -> None:
    """Write, draw and print what a simulation found."""
    from posbias.store import save_json

    answer = result.as_dict() | {"interrupted": interrupted}
    if out is not None:
        save_json(answer, out)
    if plot is not None:
        from posbias import plots

        plots.save_figure(plots.scores_figure(result), plot)
    answer_with(answer if json else None, lambda: recency_table(result))
