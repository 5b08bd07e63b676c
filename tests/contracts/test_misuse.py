"""Every argument of every public function, wrong in turn: one line of our own, and nothing before it."""

import dataclasses
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jaxtyping
import measured
import numpy as np
import pytest

import posbias
from posbias import measurement, simulation
from posbias.curves import ranks, spearman, wasserstein
from posbias.errors import PosbiasError
from posbias.profile import harmonic, uniform
from posbias.retrieval.job import retrieval_job
from posbias.theory import graph
from posbias.theory.attention import Attention
from posbias.theory.closed_forms import (
    collapse_bounds,
    critical_distances,
    deviation,
    layernorm,
    recency,
    residual_bounds,
)
from posbias.theory.mask_words import mask_of
from posbias.theory.variation import values_of, vary_two
from posbias.training import Experiment, RetrievalTask

LONGEST_LINE = 500
WRONG: dict[str, Any] = {
    "None": None,
    "nan": float("nan"),
    "inf": float("inf"),
    "minus one": -1,
    "half": 0.5,
    "zero": 0,
    "no text": "",
    "no entries": [],
    "large": 10**12,
    "huge": 10**30,
    "beyond float64": 10**400,
    "true": True,
    "digits": "1",
    "word": "nonsense",
    "bytes": b"1",
    "object": object(),
    "complex": 1j,
    "words": np.array(["a", "b"]),
    "ragged": [[1.0], [1.0, 2.0]],
    "nans": np.full(8, np.nan),
    "long": "x" * 100_000,
}


class Arg(NamedTuple):
    """A value that is right, which of `WRONG` may be right too, and what messages call it beside its name."""

    right: Any
    fine: tuple[str, ...] = ()
    said: str = ""

    def may_be(self, word: str) -> bool:
        """Whether that value is of the right type, so that it may be taken or refused for what it is."""
        kinds = {bool: ("true",), int: BIG, float: (*ANY, *BIG), str: TEXTS, list: ("no entries", "nans")}
        kinds |= {tuple: kinds[list], np.ndarray: kinds[list]}
        return word in self.fine or word in kinds.get(type(self.right), ())


def arg(right: Any, *fine: str, said: str = "") -> Arg:
    return Arg(right, fine, said)


class Call(NamedTuple):
    function: Callable[..., Any]
    arguments: dict[str, Arg]


BIG = ("large", "huge", "beyond float64")
ANY = ("minus one", "half", "zero", "large", "huge")
TEXTS = ("no text", "digits", "word", "long")
TRUTH = arg(False, "true")
ALIBI = posbias.Architecture(2, (posbias.Layer(2, positional=posbias.ALiBi()),), posbias.ConstantMixing(0.3))
PROFILE = posbias.influence(ALIBI, 8)
NEEDLE = Path(__file__).parents[1] / "elsewhere" / "needle"
LAST = arg(-1, "zero", "minus one")
SEED = arg(0, "zero", *BIG)
THREADS = arg(1, "None", *BIG)
SHAPE = {"method": arg("auto"), "threads": THREADS}
HEARD = {"on_event": arg(None, "None")}
MATRIX = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
ARCHITECTURE = {"architecture": arg(ALIBI), "tokens": arg(8)}
PATTERN = {"pattern": arg(posbias.Causal()), "tokens": arg(8)}
LAMBDA = arg(np.array([0.3, 0.2]))
MIXING = arg(posbias.PowerDecay(0.5, 1.0))
MEASUREMENT = arg(measured.measurement())
READING = arg("corrected")
JOB = retrieval_job(positions=3, prompts=2)
KIM = {"tokens": arg(6), "dimension": arg(16, "large"), "anisotropy": arg(0.5, "zero")}

TRAINED = Experiment(RetrievalTask(dimension=8, classes=16, labels=4), iterations=1, batch=2)


def of_theory() -> list[Call]:
    return [
        Call(posbias.influence, ARCHITECTURE | {"query": LAST} | SHAPE | HEARD),
        Call(posbias.predict, ARCHITECTURE | {"query": LAST} | SHAPE | HEARD),
        Call(posbias.trajectory, ARCHITECTURE | {"query": LAST} | SHAPE),
        Call(posbias.rollout, ARCHITECTURE | {"rows": arg([0, 7], "None", "no entries")} | SHAPE),
        Call(
            posbias.vary,
            ARCHITECTURE
            | {"quantity": arg("depth", said="vary"), "values": arg([1, 2], "no entries"), "query": LAST}
            | SHAPE,
        ),
        Call(
            vary_two,
            ARCHITECTURE
            | {"axes": arg([("depth", [1]), ("mixing", [0.5])], said="vary"), "query": LAST}
            | SHAPE,
        ),
        Call(values_of, {"spelling": arg("depth=1:4", said="vary")}),
        Call(
            posbias.design,
            ARCHITECTURE
            | {
                "varied": arg({"depth": [1, 2]}, said="vary"),
                "target": arg("flat"),
                "within": arg(0.1, "None", *ANY),
            }
            | {"evaluations": arg(8, *BIG), "seed": SEED, "threads": THREADS, "kept": arg(None, "None")}
            | HEARD,
        ),
        Call(posbias.alibi_slopes, {"heads": arg(4), "bias_max": arg(8.0, "half")}),
        Call(posbias.preset, {"name": arg("bloom-176b")}),
        Call(posbias.load_architecture, {"path": arg("x.toml")}),
        Call(mask_of, {"word": arg("causal", said="mask")}),
        Call(graph.graph, PATTERN),
        Call(graph.networkx_graph, PATTERN),
        Call(graph.reachable, PATTERN | {"layers": arg(2, "None", "zero")}),
        Call(graph.centre_nodes, PATTERN),
        Call(graph.walks, PATTERN | {"depth": arg(2, "zero")}),
        Call(graph.layers_to_reach, PATTERN | {"query": LAST, "key": LAST}),
        Call(
            Attention.from_arrays,
            {
                "arrays": arg([MATRIX], "zero", said="attention"),
                "mask": arg(None, "None"),
                "row_error": arg(1e-5, "None"),
                "learned_sinks": TRUTH,
            },
        ),
        Call(Attention.from_arrays([MATRIX]).rollout, {"mixing": arg(0.3), "query": LAST}),
        Call(Attention.from_arrays([MATRIX]).sinks, {"threshold": arg(0.3, "half", "zero")}),
        Call(
            Attention.from_arrays([MATRIX]).monotonicity,
            {"tolerance": arg(0.3, "half", "zero", "large", "huge")},
        ),
        Call(
            posbias.Architecture.pattern,
            {
                "depth": arg(4),
                "local": arg(1, "zero"),
                "window": arg(4, *BIG, said="width"),
                "layer": arg(posbias.Layer(), "None"),
                "full": arg(None, "None"),
                "mixing": arg(None, "None"),
                "name": arg("", *TEXTS),
            },
        ),
    ]


def of_values() -> list[Call]:
    """Values, which pydantic checks."""
    return [
        Call(
            posbias.Architecture,
            {
                "depth": arg(2),
                "layers": arg([posbias.Layer()]),
                "mixing": arg(posbias.ConstantMixing(0.5)),
                "name": arg("", *TEXTS),
                "remarks": arg((), "words"),
            },
        ),
        Call(
            posbias.Layer,
            {
                "heads": arg(2),
                "mask": arg(posbias.Causal()),
                "positional": arg(posbias.NoPE()),
                "content": arg(posbias.NoContent()),
                "head_weights": arg([0.5, 0.5], "None"),
                "temperature": arg(1.0, "half", "large", "huge"),
                "groups": arg(2, "None"),
                "sinks": arg([0.0], "None"),
            },
        ),
        Call(posbias.ALiBi, {"slopes": arg([0.5], "None"), "scale": arg(1.0, "half", "large", "huge")}),
        Call(posbias.DecayBias, {"rate": arg(0.1, "half", "zero", "large", "huge")}),
        Call(posbias.KerpleLog, {"scale": arg([0.5]), "rate": arg([0.5])}),
        Call(posbias.KerplePower, {"scale": arg([0.5]), "exponent": arg([0.5])}),
        Call(posbias.Sandwich, {"ratios": arg([0.5], "None"), "dimension": arg(8, *BIG)}),
        Call(posbias.T5, {"biases": arg([[0.5, 0.5]]), "max_distance": arg(8, *BIG)}),
        Call(posbias.Tabulated, {"table": arg([[0.5, 0.5]])}),
        Call(posbias.DenseLogits, {"matrix": arg(np.zeros((4, 4)))}),
        Call(posbias.SlidingWindow, {"width": arg(4, *BIG), "sinks": arg(1, "zero", *BIG)}),
        Call(posbias.Prefix, {"length": arg(4, *BIG)}),
        Call(posbias.Chunked, {"width": arg(4, *BIG)}),
        Call(posbias.Dilated, {"stride": arg(2, *BIG), "width": arg(4, "None", *BIG)}),
        Call(
            posbias.BlockSparse, {"block": arg(2, *BIG), "local": arg(1, *BIG), "first": arg(1, "zero", *BIG)}
        ),
        Call(posbias.Fixed, {"block": arg(4, *BIG), "last": arg(1)}),
        Call(posbias.ScalableSoftmax, {"scale": arg([0.5]), "bias": arg([0.5])}),
        Call(posbias.StepScale, {"beta": arg(0.1, "half", "zero", "large", "huge"), "period": arg(8, *BIG)}),
        Call(posbias.LinearScaling, {"factor": arg(2.0, "half", "large", "huge")}),
        Call(posbias.DynamicNTK, {"factor": arg(2.0, "half", "large", "huge"), "trained": arg(8, *BIG)}),
        Call(posbias.YaRN, {"factor": arg(2.0, "half", "large", "huge"), "trained": arg(8, *BIG)}),
        Call(posbias.Llama3Scaling, {"factor": arg(2.0, "half", "large", "huge"), "trained": arg(8, *BIG)}),
        Call(
            posbias.LongRoPE,
            {
                "short": arg([1.0]),
                "long": arg([2.0]),
                "factor": arg(2.0, "half", "large", "huge"),
                "trained": arg(8, *BIG),
            },
        ),
        Call(posbias.ProportionalRoPE, {"share": arg(0.5, "half", "zero")}),
        Call(posbias.Connection, {"mix": arg([[1.0]]), "read": arg([1.0]), "write": arg([0.5], "None")}),
        Call(
            posbias.HyperConnections,
            {"connections": arg((posbias.Connection([[1.0]], [1.0]),)), "collapse": arg([1.0])},
        ),
        Call(posbias.gated, {"architecture": arg(ALIBI), "gates": arg([0.5], "ragged"), "in_mixing": TRUTH}),
        Call(posbias.Selected, {"rates": arg([[0.5, 0.25]])}),
        Call(posbias.CustomMask, {"rule": arg(np.tri(4, dtype=bool))}),
        Call(posbias.ConstantMixing, {"value": arg(0.5, "half", "zero")}),
        Call(
            posbias.PowerDecay,
            {"initial": arg(0.5, "half", "zero"), "exponent": arg(1.0, "half", "zero", "large", "huge")},
        ),
        Call(posbias.PerLayer, {"coefficients": arg([0.5])}),
        Call(
            posbias.ConstantDiagonal,
            {"diagonal": arg([0.5]), "constant": arg([0.5]), "first_column": arg([0.5])},
        ),
        Call(
            posbias.NeedsMeasurement, {"encoding": arg("rotary", *TEXTS), "positions": arg(8, "None", *BIG)}
        ),
        Call(
            simulation.RecencyModel,
            {
                "tokens": arg(4, *BIG),
                "dimension": arg(16, *BIG),
                "anisotropy": arg(0.5, "zero", "half"),
                "norm": arg("layernorm"),
                "residual": TRUTH,
                "depth": arg(2, *BIG),
                "temperature": arg(1.0, "half", "large", "huge"),
                "gain": arg(1.0, *ANY),
                "bias": arg(0.0, *ANY),
            },
        ),
    ]


def of_closed_forms() -> list[Call]:
    bounds, distances = collapse_bounds, critical_distances
    floor = arg(0.1)
    return [
        Call(
            bounds.logit_bound,
            dict.fromkeys(("hidden_norm", "weight_bound", "value_bound"), arg(1.0, *ANY[1:])),
        ),
        Call(
            bounds.log_attention_floor,
            {"keys": arg(8, *BIG), "bound": arg(1.0, *ANY[1:]), "positional_range": arg(1.0, *ANY[1:])},
        ),
        Call(
            bounds.log_collapse_bound,
            {"floors": arg(np.array([0.1, 0.2])), "position": arg(1, "zero"), "mixing": arg(None, "None")},
        ),
        Call(bounds.hops, {"tokens": arg(8, *BIG), "width": arg(4, *BIG)}),
        Call(
            bounds.log_window_bound,
            {"floor": floor, "position": arg(1), "tokens": arg(8), "width": arg(4), "depth": arg(4)},
        ),
        Call(bounds.prefix_share, {"kernel": arg(MATRIX), "length": arg(2)}),
        Call(bounds.log_walks, {"depth": arg(4), "distance": arg(np.arange(4), "zero")}),
        Call(bounds.decay_envelope, {"rate": arg(0.1), "logit_range": arg(1.0), "tokens": arg(8)}),
        Call(
            distances.critical_distance,
            {"depth": arg(4, "half", "large", "huge"), "rate": arg(0.1, "half", "large", "huge")},
        ),
        Call(distances.modal_distance, {"depth": arg(4, "large"), "rate": arg(0.1, "half", "large", "huge")}),
        Call(
            distances.rope_critical_distance,
            {"depth": arg(4), "angle": arg(0.01), "rate": arg(1.0)},
        ),
        Call(distances.rope_modal_distance, {"depth": arg(4), "angle": arg(0.01), "rate": arg(1.0)}),
        Call(distances.critical_distance_slopes, {"depth": arg(4), "angle": arg(0.01), "rate": arg(1.0)}),
        Call(distances.drift_distance, {"logits": arg(-0.1 * np.arange(8)), "depth": arg(4, "large")}),
        Call(
            distances.collapse,
            ARCHITECTURE | {"position": arg(3, "zero"), "query": LAST},
        ),
        Call(
            distances.distance_curve,
            {"positional": arg(posbias.DecayBias(0.1)), "depths": arg([2, 4]), "tokens": arg(64)},
        ),
        Call(
            residual_bounds.smallest_admitted, {"kernel": arg(MATRIX), "allowed": arg(np.tri(4, dtype=bool))}
        ),
        Call(
            residual_bounds.softmax_floor,
            {"keys": arg(8), "logit_bound": arg(1.0), "positional_range": arg(1.0)},
        ),
        Call(
            residual_bounds.hidden_state_bound,
            {
                "coefficients": arg(LAMBDA.right, said="value_norms"),
                "value_norms": LAMBDA,
                "initial": arg(1.0),
            },
        ),
        Call(residual_bounds.self_bound, {"coefficients": LAMBDA, "floor": floor}),
        Call(
            residual_bounds.suffix_bound, {"coefficients": LAMBDA, "floor": floor, "position": arg(1, "zero")}
        ),
        Call(
            residual_bounds.exponential_bound,
            {"coefficients": LAMBDA, "floor": floor, "position": arg(1, "zero")},
        ),
        Call(residual_bounds.window_bound, {"coefficients": LAMBDA, "floor": floor, "query": arg(1, "zero")}),
        Call(residual_bounds.total_mixing, {"mixing": MIXING}),
        Call(residual_bounds.log_product, {"mixing": MIXING, "share": arg(0.5)}),
        Call(residual_bounds.dichotomy, {"mixing": MIXING, "floor": floor}),
        Call(residual_bounds.average_heads, {"kernels": arg(MATRIX[None]), "weights": arg(None, "None")}),
        Call(layernorm.recency_margin, {"scores": arg(MATRIX)}),
        Call(layernorm.exhibits_recency, {"scores": arg(MATRIX)}),
        Call(layernorm.fluctuation_factor, {"dimension": KIM["dimension"], "anisotropy": KIM["anisotropy"]}),
        Call(
            layernorm.cross_weight,
            {"dimension": KIM["dimension"], "anisotropy": KIM["anisotropy"], "reading": READING},
        ),
        Call(layernorm.normalisers, KIM | {"reading": READING}),
        Call(layernorm.log_key_factors, KIM | {"residual": TRUTH, "reading": READING}),
        Call(layernorm.key_factors, KIM | {"residual": TRUTH, "reading": READING}),
        Call(layernorm.query_factors, KIM | {"residual": TRUTH, "reading": READING}),
        Call(layernorm.second_layer_scores, KIM | {"residual": TRUTH, "reading": READING}),
        Call(
            layernorm.isotropic_scores, {"tokens": arg(6), "dimension": KIM["dimension"], "reading": READING}
        ),
        Call(
            layernorm.scores_without_layernorm,
            {"tokens": arg(6), "dimension": KIM["dimension"], "reading": READING},
        ),
        Call(
            layernorm.limit_scores,
            {"depth": arg(2)} | KIM | {"residual": TRUTH, "layernorm": arg(True, "true")},
        ),
        Call(
            recency.exact_scores,
            KIM
            | {
                "tokens": arg(3),
                "norm": arg("layernorm"),
                "residual": TRUTH,
                "depth": arg(2),
                "nodes": arg(8, "None"),
            },
        ),
        Call(
            deviation.deviation_curve,
            {"quantity": arg("rise"), "found": arg({16: (0.1, 0.01)}), "tokens": arg(6)},
        ),
    ]


def of_profiles() -> list[Call]:
    rows = {"p": arg(PROFILE.mass), "q": arg(PROFILE.mass)}
    return [
        Call(ranks, {"values": arg(PROFILE.mass)}),
        Call(spearman, rows),
        Call(wasserstein, rows),
        Call(harmonic, {"tokens": arg(8)}),
        Call(uniform, {"tokens": arg(8)}),
        Call(
            posbias.Profile,
            {
                "mass": arg(PROFILE.mass),
                "query": LAST,
                "measures": arg("rollout", *TEXTS),
                "samples": arg(None, "None"),
                "se": arg(None, "None", "nans"),
                "attrs": arg({}),
                "missing_mass": arg(0.0, "zero"),
                "left_out": arg((), "no entries"),
                "kind": arg("mass"),
            },
        ),
        Call(posbias.Profile.from_weights, {"weights": arg(PROFILE.mass)}),
        Call(posbias.Profile.from_samples, {"samples": arg(PROFILE.mass[None])}),
        Call(PROFILE.share, {"left": arg(0, "zero"), "right": arg(4)}),
        Call(PROFILE.by_share, {"shares": arg(4)}),
        Call(
            posbias.Estimate,
            {
                "value": arg(1.0, "nan", "inf", *ANY),
                "se": arg(0.1, "nan", "inf", *ANY[1:]),
                "n": arg(8, "None", *BIG),
                "freedom": arg(7.0, "nan", "inf", *ANY[1:]),
            },
        ),
        Call(
            posbias.order,
            {
                "documents": arg(2, "ragged"),
                "scores": arg([0.5, 0.25]),
                "lengths": arg([3.0, 4.0], "None"),
                "profile": arg(PROFILE),
                "prefix": arg(1.0, "half", "zero", "large"),
                "suffix": arg(1.0, "half", "zero", "large"),
            },
        ),
        Call(posbias.compare, {"p": arg(PROFILE), "q": arg(PROFILE), "by_share": TRUTH, "seed": SEED}),
        Call(
            posbias.compare_all,
            {
                "predictions": arg({"one": PROFILE}),
                "measured": arg(PROFILE),
                "held_out": arg((), "no entries"),
                "by_share": TRUTH,
                "seed": SEED,
            },
        ),
        Call(posbias.load_profile, {"path": arg("x.json")}),
        Call(
            posbias.read,
            {
                "path": arg(str(NEEDLE)),
                "model": arg(None, "None"),
                "tokens": arg("all"),
                "columns": arg(None, "None", "empty"),
            },
        ),
        Call(posbias.prior_normalised, {"attributions": arg(PROFILE), "prior": arg(PROFILE)}),
    ]


def of_measurements() -> list[Call]:
    return [
        Call(posbias.load_measurement, {"path": arg("x.nc")}),
        Call(posbias.save_measurement, {"measurement": MEASUREMENT, "path": arg("/dev/null/x.nc")}),
        Call(posbias.measured_influence, {"measurement": MEASUREMENT}),
        Call(posbias.predictions, {"measurement": MEASUREMENT}),
        Call(posbias.extrapolate, {"measurement": MEASUREMENT, "tokens": arg(96), "rule": arg("both")}),
        Call(
            posbias.write_report,
            {
                "measurement": MEASUREMENT,
                "folder": arg("/dev/null/x", said="measurement"),
                "seed": SEED._replace(said="measurement"),
            },
        ),
        Call(
            posbias.measure,
            {
                "model": arg("tiny-alibi", said="name"),
                "text": arg(None, "None"),
                "tokens": arg(8),
                "prompts": arg(2),
                "seed": SEED,
                "packed": TRUTH,
                "minimum_tokens": arg(None, "None"),
                "scramble": TRUTH,
                "dense_logits": TRUTH,
                "head_kernels": TRUTH,
                "threads": THREADS,
            },
        ),
        Call(
            partial(posbias.retrieve, job=JOB), {"model": arg("tiny-alibi", said="name"), "threads": THREADS}
        ),
        Call(
            retrieval_job,
            {
                "task": arg("keys"),
                "pairs": arg(8, "None"),
                "length": arg(None, "None"),
                "wording": arg(None, "None"),
                "positions": arg(4, "None"),
                "prompts": arg(8),
                "seed": SEED,
            },
        ),
        Call(
            measurement.load_model,
            {
                "name": arg("tiny-alibi", said="model"),
                "revision": arg(None, "None"),
                "dtype": arg("float32"),
                "device": arg("cpu"),
                "device_map": arg(None, "None"),
                "attention": arg(None, "None"),
                "trust_remote_code": TRUTH,
                "tokenizer": arg(None, "None"),
            },
        ),
        Call(
            posbias.simulate,
            {
                "model": arg(simulation.RecencyModel(4, 16, 0.5)),
                "samples": arg(100, "None"),
                "seed": SEED,
                "until_se": arg(0.5, "None", "half"),
                "threads": THREADS,
                "engine": arg("gram"),
            },
        ),
        Call(
            posbias.train,
            {
                "experiment": arg(TRAINED, said="experiment"),
                "checkpoint": arg(None, "None"),
                "device": arg("cpu"),
                "threads": THREADS,
            },
        ),
        Call(measurement.fetch, {"name": arg("no-such-model")}),
        Call(measurement.check_counts, {"tokens": arg(8, *BIG), "prompts": arg(2, *BIG), "seed": SEED}),
        Call(measurement.read_text, {"source": arg("x.txt", "None", said="text")}),
    ]


@pytest.fixture(autouse=True)
def bounded(tmp_path, monkeypatch):
    """Nothing hangs; arrays are as users give them: shapes are not checked before the function sees them."""

    def stop(*_):
        raise TimeoutError("longer than 5 s")

    monkeypatch.chdir(tmp_path)
    signal.signal(signal.SIGPROF, stop)
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
    signal.setitimer(signal.ITIMER_PROF, 0)


def misused(call: Call, name: str, word: str) -> str | None:
    """What is wrong with how a call with one wrong argument ends; None if it ends as it should."""
    given = {key: one.right for key, one in call.arguments.items()} | {name: WRONG[word]}
    signal.setitimer(signal.ITIMER_PROF, 5)
    try:
        call.function(**given)
    except PosbiasError as error:
        message = str(error)
        if "\n" in message or len(message) > LONGEST_LINE:
            return f"{len(message)} characters: {message[:200]!r}"
        named = name in message or (call.arguments[name].said or name) in message
        return None if named or str(given[name]) in message else f"does not name it: {message[:200]}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None if call.arguments[name].may_be(word) else "accepted"


CALLS = [*of_values(), *of_theory(), *of_closed_forms(), *of_profiles(), *of_measurements()]


@pytest.mark.parametrize(
    "call", CALLS, ids=lambda call: getattr(call.function, "func", call.function).__name__
)
def test_a_wrong_argument_is_named_in_one_line(call):
    with warnings.catch_warnings(), suppress(PosbiasError):
        # what is imported and compiled the first time takes longer
        call.function(**{name: one.right for name, one in call.arguments.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrong = {
            (name, word): told
            for name in call.arguments
            for word in WRONG
            if (told := misused(call, name, word)) is not None
        }
    assert not wrong, "\n".join(f"{name} = {word}: {told}" for (name, word), told in wrong.items())


def _read_only(row):
    row = row.copy()
    row.flags.writeable = False
    return row


ARRAYS = {
    "read-only": _read_only,
    "every second": lambda row: np.repeat(row, 2, axis=-1)[..., ::2],
    "column first": np.asfortranarray,
    "big-endian": lambda row: row.astype(">f8"),
    "single": lambda row: row.astype(np.float32),
    "half": lambda row: row.astype(np.float16),
    "list": lambda row: row.tolist(),
}


@pytest.mark.parametrize("form", ARRAYS)
def test_every_function_computes_in_float64_whatever_the_form_of_an_array(form):
    """Numbers that half precision has not are rounded once, by whoever gave them so; a sum of 1 is then none."""
    tried = 0
    for call in CALLS:
        right = {name: one.right for name, one in call.arguments.items()}
        numbers = {
            name: one for name, one in right.items() if isinstance(one, np.ndarray) and one.dtype == float
        }
        for name, array in numbers.items() if call.function is not posbias.Profile else ():
            given = ARRAYS[form](array)
            plain = np.array(given, dtype=array.dtype)
            found, expected = (call.function(**right | {name: one}) for one in (given, plain))
            np.testing.assert_equal(_numbers(found), _numbers(expected), err_msg=f"{call.function}: {name}")
            tried += 1
    assert tried >= 20


def _numbers(found):
    if isinstance(found, posbias.Profile):
        return found.mass, found.samples, found.se
    return dataclasses.astuple(found) if dataclasses.is_dataclass(found) else found


def test_what_the_package_offers_is_called_here():
    """But for values without a field, and what comes out of a call and is not made by people."""
    called = {getattr(call.function, "func", call.function) for call in CALLS}
    without = {
        *("Attention", "AttentionOnly", "Causal", "Full", "NoContent", "NoPE", "PreNormInit", "AbnarZuidema"),
        *("Comparison", "Designs", "Ordering", "Summary", "DistanceFunction", "RoPE", "PosbiasError"),
        "report",  # a module of 0.1 that is called: write_report
    }
    offered = {name for name in posbias.__all__ if callable(getattr(posbias, name))}
    assert {name for name in offered if getattr(posbias, name) not in called} == without


@pytest.mark.parametrize("form", ARRAYS)
def test_arrays_of_every_form_are_the_same_numbers(form):
    """Sixteenths, which half precision has exactly."""
    random = np.random.default_rng(0)
    mass = random.multinomial(16, np.full(8, 1 / 8)) / 16
    kernel = (
        np.array(
            [
                random.multinomial(16, np.eye(1, 4)[0] * 0 + (np.arange(4) <= row) / (row + 1))
                for row in range(4)
            ]
        )
        / 16
    )
    weights, rows = ARRAYS[form](mass), ARRAYS[form](kernel)
    assert (posbias.Profile(weights).mass == mass).all()
    assert (posbias.Profile.from_weights(weights).mass == mass).all()
    assert (posbias.Profile.from_samples(rows).mass == posbias.Profile.from_samples(kernel).mass).all()
    assert (ranks(weights) == ranks(mass)).all()
    assert spearman(weights, mass[::-1]) == spearman(mass, mass[::-1])
    assert wasserstein(weights, mass[::-1]) == wasserstein(mass, mass[::-1])
    attention, plain = Attention.from_arrays([rows]), Attention.from_arrays([kernel])
    assert (attention.rollout(0.5).mass == plain.rollout(0.5).mass).all()
    assert (attention.rollout(weights[:1]).mass == plain.rollout(mass[:1]).mass).all()
    assert posbias.PerLayer(weights) == posbias.PerLayer(mass)
    assert posbias.Tabulated(rows) == posbias.Tabulated(kernel)
    assert collapse_bounds.prefix_share(rows, 2).tolist() == collapse_bounds.prefix_share(kernel, 2).tolist()
    assert residual_bounds.self_bound(weights, 0.5).tolist() == residual_bounds.self_bound(mass, 0.5).tolist()
    assert critical_distances.drift_distance(weights, 4) == critical_distances.drift_distance(mass, 4)
    assert layernorm.recency_margin(rows) == layernorm.recency_margin(kernel)


def test_a_list_stands_for_a_tuple_and_nothing_is_given_twice():
    layer = posbias.Layer()
    assert posbias.Architecture(2, [layer]) == posbias.Architecture(2, (layer,))
    with pytest.raises(PosbiasError, match="depth given twice"):
        posbias.Architecture(2, depth=3)
