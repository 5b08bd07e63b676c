"""The commands that simulate: layernorm."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from posbias.cli.speaking import COMPILING, Json, Many, Whole, answer_with, bar_of, notice
from posbias.errors import InvalidValueError
from posbias.files import need_writable
from posbias.terminal import recency_table

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
    # what can be known to be wrong is said before anything is drawn
    if plot is not None:
        from posbias.plots import check_kind

        check_kind(plot)
    for target in (out, plot):
        if target is not None:
            need_writable(target)
    if tokens < 3:
        raise InvalidValueError(f"tokens: {tokens} given, at least 3 needed for a recency probability")
    from posbias.simulate import InterruptedSimulation, RecencyModel, simulate_recency

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
    with bar_of("sample") as progress, notice(COMPILING):
        try:
            result = simulate_recency(
                model,
                samples,
                seed=seed,
                until_se=until_se,
                threads=threads,
                engine=engine,
                progress=progress,
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
