"""`posbias predict`: the influence of every position from an architecture."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli import options as shared
from posbias.cli.mixing import say_mixing, with_mixing
from posbias.cli.output import COMPILING, answer_with, notice, progress
from posbias.cli.terminal import describe_map, describe_several, describe_variation
from posbias.core.terminal import plain, table
from posbias.reports import answers, plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posbias.theory.critical_distances import DistanceCurve

log = logging.getLogger(__name__)
CRITICAL = ("decay", "rope_angle")
"""What critical distances may be computed for several values of."""
ROWS = 24
"""Depths that a table of critical distances has at most."""


@shared.options
class Options:
    """What is predicted, and how.

    Parameters
    ----------
    tokens
        Length of the text, or several with commas: 8192,128k,1M (k, K: 1,000). Default: the file's `tokens`, with
        --calibrate those measured, else 256.
    query
        The position that is influenced, counted from 0; negative counts from the end.
    mixing
        Weight of attention in every layer instead of the file's: a number from 0 to 1, `published` (of this model,
        where it is known), the name of a model whose λ is known or a measurement's .nc (of another depth: at the
        same relative depth), trained_median (the default where λ is not known: over pretrained models, layer by
        layer), `init` (a network at initialisation), attention_only, abnar_zuidema, or an architecture file that
        has it.
    calibrate
        A measurement of the model (.nc) at this length or a shorter one, or the name of one that comes along,
        smollm2-135m: the curve it gives at `tokens`, for models whose positions act through queries and keys.
    rule
        How --calibrate goes on to longer texts: stretched (by share of the context), continued (by distance to the
        query) or both (from the one to the other, by place; the default).
    vary
        What if: the profile for many values of one quantity, for instance depth=1:64, mixing=0:1,
        window=64:4096:12 (12 values) or tokens=256,1024,4096; given twice, a map of the shares of both ends
        over two. Quantities: depth, mixing, mixing_exponent (β of λ/(t + 1)^β), window, full_period (a full layer
        in every this many), full_place (its place among them), sinks (first tokens that windows see), heads,
        gate (on all heads), prefix, chunk, dilated (its stride), blocks (tokens in one), slopes (factor on those
        of ALiBi), rope_base, rope_angle (of one pair), rope_factor (of scaling), rope_linear, rope_ntk,
        rope_yarn and rope_llama3 (another scaling, by its factor), kerple (factor on its scale),
        diagonal and first_column (of content), sink_logit, decay, nope_period, temperature, scalable_softmax (its
        s), step_scale (its β), tokens.
    depth_trajectory
        The profile after every layer, from none to all.
    critical_distance
        Where depth and decay balance, at every depth up to the architecture's: x* of Wu et al. 2025 and the peak
        of the rollout itself, its first token left out; with --vary decay=0.1,0.5 or rope_angle=0.01,0.1 for each
        value. For causal layers of a decay mask or one rotary pair, with --mixing attention_only.
    method
        How layers are computed: auto, sweep, fft or stream. Auto takes the fastest that is exact.
    cache_dtype
        Type of the numbers in the KV cache: float32, bfloat16 (the default), float16, float8, int8 or int4.
    out
        Write the prediction as JSON to this file.
    plot
        Draw the profile (or profiles) to this file (.png, .svg or .pdf).
    """

    tokens: shared.Lengths = ()
    query: shared.Whole = -1
    mixing: str | None = None
    calibrate: str | None = None
    rule: str | None = None
    vary: shared.Words = ()
    depth_trajectory: shared.Flag = False
    critical_distance: shared.Flag = False
    method: str = "auto"
    cache_dtype: str = "bfloat16"
    out: shared.Out | None = None
    plot: Path | None = None
    threads: shared.Threads = None
    json: shared.Json = False


def predict(architecture: str, *more: str, options: Options = Options()) -> None:
    """Predict the influence of every position from an architecture, or from several.

    Parameters
    ----------
    architecture
        A TOML, YAML or JSON file: ours, a Hugging Face config.json (or its folder), or a rollout file of
        Herasimchyk et al. Or the name of a preset, such as bloom-176b (`posbias presets` lists them), its name on
        the Hugging Face Hub, or that of a small model that comes along, such as tiny-alibi.
    more
        More of them: which keeps the middle of the text, under which known λ, and the size of each KV cache.
    """
    shared.check_targets(options.out, options.plot, architecture, *more, options.calibrate, options.mixing)
    measurement = _calibration(options)
    cases = [case for given in (architecture, *more) for case in _cases(given, options, measurement)]
    for place, case in enumerate(cases):
        if case in cases[:place]:
            raise shared.wrong("architecture", "each once, at each length", got=f"{case.name} twice")
    single = {"critical_distance": options.critical_distance, "depth_trajectory": options.depth_trajectory}
    asked = [name for name, wanted in {**single, "vary": options.vary}.items() if wanted]
    if len(cases) > 1 and asked:
        raise shared.wrong(asked[0], "a single prediction with it", len(cases))
    for name in (one.partition("=")[0] for one in options.vary):
        if name in ("tokens", "mixing"):
            shared.refuse(options, f"none with --vary {name}", (name,))
    if asked:
        name = asked[0].replace("_", "-")
        shared.refuse(options, f"none with --{name}, which shows no cache", ("cache_dtype",))
    if "depth_trajectory" in asked and len(asked) > 1:
        raise shared.wrong("depth_trajectory", "no --vary and no --critical-distance with it", asked[0])
    with notice(COMPILING):
        if options.critical_distance:
            found = _critical(cases[0], options)
        elif len(cases) > 1:
            found = _several(cases, options, measurement)
        elif len(options.vary) > 1:
            found = _map(cases[0], options)
        elif options.vary or options.depth_trajectory:
            found = _varied(cases[0], options)
        else:
            found = _one(cases[0], options, measurement)
    _answer(options, *found)


@dataclass(frozen=True)
class _Case:
    """An architecture with a length, and what a table calls it."""

    name: str
    architecture: Any
    tokens: int

    def about(self, varied: Collection[str] = (), assumes: bool = True) -> dict[str, Any]:
        """The architecture and what it assumes besides quantities that are varied, ready for JSON."""
        from posbias.core.spec import encode

        one = self.architecture
        said = one.assumptions if "tokens" in varied else one.assumptions_at(self.tokens)
        left = [text for text in said if "mixing" not in varied or text != one.mixing.assumed]
        return {"architecture": encode(one), "assumptions": left if assumes else []}

    def answer(self, kind: Any, profile: Any, options: Options, **more: Any) -> Any:
        """The prediction as an answer of this kind."""
        from posbias.theory.cache import cache_of

        own = profile.calibration is None
        mixing = self.architecture.coefficients if own else None
        cache = cache_of(self.architecture, self.tokens, options.cache_dtype)
        return kind.of(profile, mixing=mixing, cache=cache, **self.about(assumes=own), **more)

    def profile(self, options: Options, measurement: Any = None) -> Any:
        """Predicted, with a bar for long work, or continued from a measurement."""
        if measurement is not None:
            from posbias.comparison.extrapolation import extrapolate

            return extrapolate(measurement, self.tokens, options.rule or "both", self.architecture)
        from posbias.theory.prediction import predict

        with progress() as on_event:
            return predict(
                self.architecture,
                self.tokens,
                options.query,
                method=options.method,
                threads=options.threads,
                on_event=on_event,
            )


def _cases(given: str, options: Options, measurement: Any) -> list[_Case]:
    """What was named, at every length that was asked for."""
    from posbias.theory.configs import read_architecture

    chosen, written_for = read_architecture(given)
    if options.mixing is not None:
        chosen = with_mixing(options.mixing, chosen)
    usual = written_for or 256 if measurement is None else measurement.sizes["position"]
    path = Path(given)
    name = chosen.name or (path.resolve().parent.name if path.name == "config.json" else path.stem)
    return [_Case(name, chosen, tokens) for tokens in options.tokens or (usual,)]


def _calibration(options: Options) -> Any:
    """The measurement to go on from, or None. Raises `InvalidValueError` for options that do not go with it."""
    if options.calibrate is None:
        if options.rule is not None:
            raise shared.wrong("rule", "--calibrate with it", options.rule)
        return None
    others = ("vary", "depth_trajectory", "critical_distance", "mixing", "query", "method")
    shared.refuse(options, "none with --calibrate, which has its own", others)
    from posbias.profiles.measurements import BUNDLED, load_measurement

    if options.calibrate != BUNDLED.stem and not options.calibrate.endswith(".nc"):
        raise shared.wrong("calibrate", f"a measurement's .nc or {BUNDLED.stem}", options.calibrate)
    return load_measurement(options.calibrate)


Found = tuple[Any, Callable[[], list[str]], Callable[[], "Figure"]]
"""An answer, its lines, and its picture."""


def _answer(
    options: Options, answer: Any, lines: Callable[[], list[str]], draw: Callable[[], "Figure"]
) -> None:
    """Draw, say what is assumed (each assumption of an architecture once), and print."""
    if options.plot is not None:
        plots.save_figure(draw(), options.plot)
    several = getattr(answer, "predictions", None)
    named = [("", answer)] if several is None else [(one.name, one) for one in several]
    assumed = [
        f"assumed{f' of {name}' if name else ''}: {assumption}"
        for name, one in named
        for assumption in one.assumptions
    ]
    for line in dict.fromkeys(assumed):
        log.warning("%s", line)  # with -q too: without it an answer says more than is known
    answer_with(answer, lines, options.json, options.out)


def _one(case: _Case, options: Options, measurement: Any) -> Found:
    from posbias.reports.profile_sentences import describe

    profile = case.profile(options, measurement)
    answer = case.answer(answers.Predict, profile, options)
    say_mixing(answer.mixing)
    lines = lambda: [*describe(profile), str(answer.cache)]  # noqa: E731
    return answer, lines, lambda: plots.drawing(plots.draw_profile, profile)


def _several(cases: Sequence[_Case], options: Options, measurement: Any) -> Found:
    """Answer with which keeps the middle, and a table of all, the flattest first."""
    from posbias.theory.prediction import decide

    found = [(case, case.profile(options, measurement)) for case in cases]
    found.sort(key=lambda one: one[1].summary.flatness, reverse=True)
    length = len({case.tokens for case in cases}) > 1
    curves: dict[str, Any] = {}
    for case, profile in found:
        name = case.name + f", {case.tokens:,} tokens" * length
        curves[f"{name} ({len(curves) + 1})" if name in curves else name] = profile
    each = [case.answer(answers.NamedPrediction, profile, options, name=case.name) for case, profile in found]
    decision = decide(curves, {name: one.cache for name, one in zip(curves, each, strict=True)})
    answer = answers.PredictSeveral.of(decision=decision, predictions=each)
    picture = lambda: plots.drawing(plots.draw_profiles, curves, size=(6.4, 3.6))  # noqa: E731
    return answer, lambda: describe_several(decision), picture


def _varied(case: _Case, options: Options) -> Found:
    """Answer with a profile for every value of a quantity, or after every layer."""
    from posbias.theory import variation
    from posbias.theory.rollout.dispatch import trajectory

    architecture, at = case.architecture, (case.tokens, options.query)
    method, threads = options.method, options.threads
    if options.depth_trajectory:
        profiles = trajectory(architecture, *at, method=method, threads=threads)
        quantity, found = "layers passed", list(enumerate(profiles))
    else:
        quantity, values = variation.values_of(options.vary[0])
        found = variation.vary(architecture, quantity, values, *at, method=method, threads=threads)
    answer = answers.PredictVaried.of(
        varied=quantity,
        values=[value for value, _ in found],
        profiles=[answers.Profile.of(profile) for _, profile in found],
        measured=variation.MEASURED.get(quantity, []),
        **case.about([quantity]),
    )
    picture = lambda: plots.variation_figure(quantity, found)  # noqa: E731
    return answer, lambda: [*describe_variation(quantity, found), *answer.measured], picture


def _map(case: _Case, options: Options) -> Found:
    """Answer with the shares of both ends over two quantities."""
    from posbias.theory import variation

    axes = [variation.values_of(spelling) for spelling in options.vary]
    at, method, threads = (case.tokens, options.query), options.method, options.threads
    profiles = variation.vary_two(case.architecture, axes, *at, method=method, threads=threads)
    answer = answers.PredictMap.of(
        varied=[name for name, _ in axes],
        values=[values for _, values in axes],
        summaries=[[profile.summary for profile in row] for row in profiles],
        left_out=[[profile.left_out for profile in row] for row in profiles],
        **case.about([name for name, _ in axes]),
    )
    return answer, lambda: describe_map(axes, profiles), lambda: plots.map_figure(axes, profiles)


def _critical(case: _Case, options: Options) -> Found:
    """Answer with x* and the peaks of walks × envelope and of the rollout, by depth."""
    shared.refuse(options, "none with --critical-distance", ("query", "method"))
    curves = _distance_curves(case, options.vary)
    head = ["encoding", "layers", "x*", "peak of walks × envelope", "peak of the rollout", "its drift"]
    rows = [
        [curve.name, str(depth), plain(x), str(modal), str(peak), plain(drift)]
        for curve in curves
        for depth, x, modal, peak, drift in zip(
            curve.depth, curve.predicted, curve.modal, curve.rollout, curve.drift, strict=True
        )
    ]
    said = "distances from the query, in tokens; x*: Wu et al. 2025, Theorems 4.5 and 4.7"
    said += "; of the rollout token 0 is left out"
    answer = answers.PredictCritical.of(tokens=case.tokens, curves=curves, **case.about())
    named = {curve.name: curve for curve in curves}
    picture = lambda: plots.drawing(plots.draw_critical_distance, named)  # noqa: E731
    return answer, lambda: [*table(head, rows), "", said], picture


def _distance_curves(case: Any, varied: Sequence[str]) -> "list[DistanceCurve]":
    """Critical distances for each value of the varied quantity.

    Raises `InvalidValueError` for an architecture that Theorems 4.5 and 4.7 of Wu et al. 2025 do not speak of.
    """
    import numpy as np

    from posbias.theory.architecture import Layer
    from posbias.theory.critical_distances import distance_curve
    from posbias.theory.variation import QUANTITIES, values_of

    quantities = dict(map(values_of, varied))
    if len(varied) > 1 or not quantities.keys() <= set(CRITICAL):
        raise shared.wrong("vary", f"{' or '.join(CRITICAL)}, once, with --critical-distance", varied)
    variants: list[Any] = [case.architecture]
    for name, values in quantities.items():
        variants = [QUANTITIES[name].change(case.architecture, value) for value in values]
    for one in variants:
        plain_layers = {Layer(positional=one.layers[0].positional)} == set(one.layers)
        if not plain_layers or one.streams is not None or (one.coefficients != 1).any():
            plain = "equal causal layers of one head without content, --mixing attention_only"
            raise shared.wrong("critical_distance", plain, one.name or "others")
    depth = case.architecture.depth
    depths = np.unique(np.linspace(1, depth, min(ROWS, depth)).round().astype(int)).tolist()
    return [distance_curve(one.layers[0].positional, depths, case.tokens) for one in variants]
