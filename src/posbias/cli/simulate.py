"""`posbias simulate layernorm`: the recency bias between random embeddings."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from posbias.cli import options as shared
from posbias.cli.output import COMPILING, answer_with, progress
from posbias.core.terminal import table
from posbias.reports import answers, plots

if TYPE_CHECKING:
    from posbias.simulation import InterruptedSimulation, RecencyModel, RecencyResult

SAMPLES = {"quick": 1_000_000, "full": 10_000_000}
simulate = App(name="simulate", help="Simulate position bias in controlled cases.", help_format="plaintext")


@shared.options
class Model:
    """What is simulated.

    Parameters
    ----------
    dimension
        Dimension of the embeddings.
    anisotropy
        Their anisotropy, the cosine of the angle between two of them: from 0 to below 1.
    norm
        What normalises a layer's input: layernorm, rmsnorm or none.
    residual
        Add a layer's input to its output.
    depth
        Number of layers.
    tokens
        Number of embeddings; at least 3.
    order
        Norm before attention (pre) or after it (post).
    temperature
        Divides the scores, as the root of d does.
    mask
        causal (the default), window=WIDTH, chunk=WIDTH, dilated=STRIDE, blocks=TOKENS, prefix=LENGTH or full; the
        last two with --engine token_space.
    """

    dimension: Annotated[shared.Whole, Parameter(name=["--d", "--dimension"])] = 16
    anisotropy: Annotated[float, Parameter(name=["--alpha", "--anisotropy"])] = 0.5
    norm: Literal["layernorm", "rmsnorm", "none"] = "layernorm"
    residual: bool = False
    depth: Annotated[shared.Whole, Parameter(name=["--layers", "--depth"])] = 4
    tokens: shared.Whole = 10
    order: Literal["pre", "post"] = "pre"
    temperature: float = 1.0
    mask: str = "causal"


@shared.options
class Options:
    """How much is drawn, and where the answer goes.

    Parameters
    ----------
    effort
        Draws of all embeddings: quick (a million), full (ten million, as in the paper), or a number such as 1e7.
        Default: quick, or as many as --until-se takes.
    until_se
        Go on until every layer's recency probability has at most this standard error.
    engine
        gram (cost independent of d) or token_space (the plain simulation, on one core).
    out
        Write the answer as JSON to this file.
    plot
        Draw the mean scores of every layer to this file (.png, .svg or .pdf).
    """

    effort: shared.Effort | None = None
    until_se: float | None = None
    seed: shared.Seed = 0
    threads: shared.Threads = None
    engine: Literal["gram", "token_space"] = "gram"
    out: shared.Out | None = None
    plot: shared.Plot = None
    json: shared.Json = False


@simulate.command
def layernorm(*, model: Model = Model(), options: Options = Options()) -> None:
    """Simulate the recency bias that a norm induces between random embeddings (Kim et al. 2026).

    Random embeddings pass through attention layers without parameters. The answer is the recency probability
    of each layer: how often a key scores higher than an earlier one, both before the query; ½ is no
    preference. Ctrl-C keeps what is counted so far and says how precise it is.
    """
    shared.check_targets(options.out, options.plot)
    if model.tokens < 3:
        raise shared.wrong("tokens", "at least 3, for a recency probability", model.tokens)
    from posbias.simulation import RecencyModel
    from posbias.theory.masks import mask_of

    fields: dict[str, Any] = {**vars(model), "mask": mask_of(model.mask)}
    result, interrupted = _simulated(RecencyModel(**fields), options)
    answer = answers.SimulateLayernorm.of(result, interrupted=interrupted is not None)
    if options.plot is not None:
        plots.save_figure(plots.scores_figure(result), options.plot)
    answer_with(answer, lambda: _lines(result), options.json, options.out)
    if interrupted is not None:
        worst = max(p.se for p in result.recency_probability)
        said = f"{result.samples:,} samples are counted above"
        raise KeyboardInterrupt(f"{said}, standard errors at most {worst:.2g}")


def _simulated(
    model: "RecencyModel", options: Options
) -> "tuple[RecencyResult, InterruptedSimulation | None]":
    """What was counted, and what interrupted it. Raises KeyboardInterrupt where nothing was."""
    from posbias.simulation import InterruptedSimulation, simulate_recency

    samples = None if options.effort is None else shared.amount(options.effort, SAMPLES)
    names = ("seed", "until_se", "threads", "engine")
    how: dict[str, Any] = {name: getattr(options, name) for name in names}
    with progress(COMPILING) as on_event:
        try:
            return simulate_recency(model, samples, on_event=on_event, **how), None
        except InterruptedSimulation as stopped:
            if stopped.result is None:
                raise KeyboardInterrupt("before the first samples were counted") from None
            return stopped.result, stopped


def _lines(result: "RecencyResult") -> list[str]:
    """A line for each layer, then what the words mean."""
    last, scores = result.model.tokens - 1, result.mean_scores.value[:, -1]
    head = ["layer", "recency probability", "adjacency probability", "Definition 1"]
    head.append("last query's mean scores: first, middle, last key")
    columns = (result.recency_probability, result.adjacency_probability, result.exhibits_recency(), scores)
    rows = [
        [
            str(layer),
            str(probability),
            str(adjacent),
            definition.verdict,
            " ".join("–" if one != one else f"{one:.3f}" for one in row[[0, last // 2, last - 1]]),
        ]
        for layer, (probability, adjacent, definition, row) in enumerate(zip(*columns, strict=True), 1)
    ]
    said = "samples; ½ is no preference; adjacency: the nearer key is the one before the query"
    return [*table(head, rows), "", f"{result.samples:,} {said}"]
