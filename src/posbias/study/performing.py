"""What the verbs of a study do: each function performs one of them with a seed and names what it found.

A cell runs on so many threads as its study gives every cell (one, unless it says otherwise), whichever engine runs
it: results then do not depend on where they were computed, beyond what torch's own kernels do.
"""

import logging
import math
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.core.events import OnEvent
from posbias.core.store import versions_here
from posbias.core.threads import torch_threads
from posbias.study.quantities import Quantities, estimated, quantity
from posbias.study.verbs import Found, Measure, Predict, Simulate, Train, decode_verb

if TYPE_CHECKING:
    from posbias.profiles.profile import Profile

log = logging.getLogger(__name__)


def perform(
    spec: Mapping[str, Any],
    seed: int,
    cores: int = 1,
    *,
    on_event: OnEvent | None = None,
) -> dict[str, Any]:
    """Do what a verb says: the work of one cell, as an engine of `posbias.core.running` calls it.

    Returns, in JSON's terms, "result" ("quantities" and "about"), "versions" and "cost". Raises what the verb's
    own functions raise.
    """
    verb = decode_verb(spec)
    began, used = time.monotonic(), time.process_time()
    perform_it = partial(_PERFORM[type(verb)], verb) if type(verb) in _PERFORM else verb.perform
    quantities, about = perform_it(seed, cores, on_event or (lambda event: None))
    cost = {
        "seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - used,
        "cores": cores,
        "peak_memory": _peak_memory(),
    }
    return {
        "result": {"quantities": quantities, "about": about},
        "versions": versions_here(verb.packages),
        "cost": cost,
    }


def _peak_memory() -> int:
    """The most bytes that this process has held, in this cell or an earlier one."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def predict(verb: Predict, seed: int, cores: int, on_event: OnEvent) -> Found:
    """The predicted profile and its statistics; nothing is drawn."""
    from posbias.theory.rollout.dispatch import influence

    architecture = verb.architecture
    if verb.mixing is not None:
        architecture = replace(architecture, mixing=verb.mixing)
    profile = influence(architecture, verb.tokens, verb.query, threads=cores)
    found = shape(profile) | {"lost": quantity(profile.missing_mass), "profile": quantity(profile.mass)}
    about = {"verdict": profile.summary.verdict, "assumptions": profile.attrs["assumptions"]}
    return found, about | {"exact": profile.attrs["exact"], "method": profile.attrs["method"]}


def shape(profile: "Profile") -> Quantities:
    """The statistics of a profile, as exact numbers."""
    summary = profile.summary
    first, middle, last = summary.ratio
    numbers: dict[str, float] = {
        "first_mass": summary.first_mass,
        "last_mass": summary.last_mass,
        "trough": summary.trough,
        "trough_depth": summary.trough_depth,
        "ratio_first": first,
        "ratio_middle": middle,
        "ratio_last": last,
        "effective_range": summary.effective_range,
        "entropy": summary.entropy,
        "favours_first": math.nan if summary.verdict is None else summary.verdict in ("U", "primacy"),
        "favours_last": math.nan if summary.verdict is None else summary.verdict in ("U", "recency"),
    }
    return {name: quantity(number) for name, number in numbers.items()}


def _ends(profile: "Profile", prompts: int) -> Quantities:
    """What a measured profile's ends and trough hold, with their errors over prompts."""
    ends, tokens = profile.summary.ends, profile.tokens
    first, last, trough = profile.share(0, ends), profile.share(tokens - ends, tokens), profile.trough_share
    scale = tokens / ends
    return {
        "first_mass": estimated(first),
        "last_mass": estimated(last),
        "ratio_first": quantity(first.value * scale, first.se * scale, prompts),
        "ratio_last": quantity(last.value * scale, last.se * scale, prompts),
        "trough_depth": quantity(1 - trough.value * scale, trough.se * scale, prompts),
    }


def simulate(verb: Simulate, seed: int, cores: int, on_event: OnEvent) -> Found:
    """Recency probabilities by layer, and the mean scores and attention of the last layer's last query."""
    from posbias.simulation import simulate_recency

    result = simulate_recency(verb.model, verb.samples, seed=seed, threads=cores, on_event=on_event)
    recency = result.exhibits_recency()
    last, count = verb.model.tokens - 1, result.samples
    distance, scores, attention = result.by_distance, result.mean_scores, result.mean_attention
    found = {
        "recency_probability": estimated(result.recency_probability),
        "plain_recency_probability": estimated(result.plain_recency_probability),
        "least_step": estimated([one.least for one in recency]),
        "recency_by_distance": quantity(distance.value[-1, 1:last], distance.se[-1, 1:last], count),
        "last_scores": quantity(scores.value[-1, last], scores.se[-1, last], count),
        "last_attention": quantity(attention.value[-1, last], attention.se[-1, last], count),
    }
    return found, {"definition_1": [one.verdict for one in recency]}


def train(verb: Train, seed: int, cores: int, on_event: OnEvent) -> Found:
    """What one trained network favours; errors are over its test sequences."""
    from posbias.training import evaluate
    from posbias.training import train as train_network
    from posbias.training.sinks import sinks

    with torch_threads(1):
        trained = train_network(
            verb.experiment(seed),
            device=verb.device,
            threads=1,
            on_event=on_event,
        )
        evaluation, drawn = evaluate(trained, verb.sequences), sinks(trained, verb.sequences)
    found: Quantities = {}
    for name, gap in evaluation.gaps.items():
        pair = name.replace("-", "_")
        found[f"gap_{pair}"] = estimated(gap.over_all.over_sequences)
        found[f"informative_gap_{pair}"] = estimated(gap.over_informative.over_sequences)
    found |= {
        "in_context_accuracy": estimated(evaluation.in_context_accuracy.over_sequences),
        "loss": estimated(evaluation.loss.over_sequences),
    }
    for name in ("accuracy_by_position", "accuracy_alone"):
        share = getattr(evaluation, name)[0]
        # a share of 0 or 1 is not certain: one success and one failure more, for the error alone
        likely = (share * verb.sequences + 1) / (verb.sequences + 2)
        found[name] = quantity(share, np.sqrt(likely * (1 - likely) / (verb.sequences - 1)), verb.sequences)
    shares = {"sink": drawn.metric(), "sink_untrained": drawn.metric_untrained()}
    found |= {name: quantity(share[0, 0], math.nan, verb.sequences) for name, share in shares.items()}
    found["sink_uniform"] = quantity(drawn.metric_uniform()[0])
    return found, {"stopped": {str(one): at for one, at in trained.stopped.items()}}


def measure(verb: Measure, seed: int, cores: int, on_event: OnEvent) -> Found:
    """Measured influence, mixing and sinks, and how well every predictor fits."""
    from posbias.comparison.predictors import predictions
    from posbias.comparison.scores import compare_all
    from posbias.measurement import for_length, load_model
    from posbias.measurement import measure as measure_model
    from posbias.profiles.influence import measured_influence

    with torch_threads(cores):
        loaded = for_length(load_model(verb.model, dtype=verb.dtype, device=verb.device), verb.tokens)
        data = measure_model(
            loaded,
            text=verb.text,
            tokens=verb.tokens,
            prompts=verb.prompts,
            seed=seed,
            scramble=verb.scramble,
            threads=cores,
            on_event=on_event,
        )
    profile, prompts = measured_influence(data), data.sizes["prompt"]
    found = shape(profile) | _ends(profile, prompts)
    found["profile"] = quantity(profile.mass, profile.se, prompts)
    found |= {name: _over_prompts(data[name].values) for name in ("mixing", "loss")}
    found["sink_share"] = quantity(float(data["sink_share"].mean()), math.nan, prompts)
    compared = compare_all(predictions(data), profile, seed=seed)
    for name, agreement in (compared.agreements | compared.baselines).items():
        for score in ("spearman", "wasserstein"):
            given = getattr(agreement, score)
            found[f"{score}_{name}"] = quantity(given.value, given.se, prompts)
    kept = ("checksum", "text_sha256", "attention", "dtype", "fingerprint")
    return found, {name: data.attrs[name] for name in kept if name in data.attrs} | {
        "verdict": profile.summary.verdict
    }


def _over_prompts(values: np.ndarray) -> dict[str, Any]:
    """The mean over prompts with its standard error."""
    count = len(values)
    se = values.std(axis=0, ddof=1) / math.sqrt(count) if count > 1 else np.full(values.shape[1:], math.nan)
    return quantity(values.mean(axis=0), se, count)


_PERFORM: dict[type, Any] = {
    Predict: predict,
    Simulate: simulate,
    Train: train,
    Measure: measure,
}
