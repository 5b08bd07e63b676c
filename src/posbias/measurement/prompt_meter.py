"""Everything that is measured on one prompt, from one forward pass and the backward passes that are asked for.

While the pass runs, each layer's attention is gone through in blocks of queries, reduced to what is kept and
then let go: no n × n matrix of all heads is held, unless the model makes it (eager attention) or it was asked
for (`MeasurementJob.dense_logits`). What cannot be determined of a layer is NaN.
"""

import logging
import re
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from posbias.core.errors import ModelError, NonFiniteError, wrong
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.capture.recurrences import Effective
from posbias.measurement.capture.rerun import Call, recording
from posbias.measurement.capture.scores import Factored, Given
from posbias.measurement.job import MeasurementJob
from posbias.measurement.models.families import adds_to_stream, decoder_layers
from posbias.measurement.models.loading import FUSED, LoadedModel
from posbias.measurement.quantities.attention import KERNEL_TOKENS, layer_means
from posbias.measurement.quantities.influence import Economy, economy, gradients, predict
from posbias.measurement.quantities.jacobian import HeadGains, gains_of, stretch_of
from posbias.measurement.quantities.mixing import feed_forward_share, mixings
from posbias.measurement.quantities.rollouts import Rollouts
from posbias.measurement.result import INFLUENCES, OF_STATES, QUANTITIES, WHOLE_GRAPH, Arrays

log = logging.getLogger(__name__)
KINDS_OF_LAYERS = {"softmax": (Effective,), "others": (Given, Factored)}
"""Influences through one kind of layers → whose updates are constants there."""
_NO_MEMORY = re.compile(r"out of memory|not enough memory|can(no|')t allocate memory", re.I)


class PromptMeter:
    """Measures the prompts of one job on one model; what depends on the model alone is found once, on `short`.

    That are the head `gains` for energy kernels and rollouts, None where the model does not show them, and what
    the passes of long prompts need not remember (`influence.economy`), layers among it with `recompute`. Raises
    `ModelError` without gains for a rollout that needs them.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        job: MeasurementJob,
        short: Int[Tensor, "position"],
        recompute: bool = False,
    ):
        self._loaded, self._job, self._short = loaded, job, short
        self._target = job.target_of(loaded)
        self._layers = decoder_layers(loaded.model)
        self._additive = adds_to_stream(loaded.family, loaded.model.config)
        self.gains: HeadGains | None = None
        try:
            self.gains = gains_of(loaded.model, loaded.family, short)
        except ModelError as error:
            if "energy" in job.rollouts:
                raise
            log.warning("no energy kernels: %s", error)
        self._economy = Economy()
        if job.tokens > FUSED:
            self._spare(recompute)

    def measure(self, ids: Int[np.ndarray, "position"], prompt: str) -> Arrays:
        """Return what was measured of one prompt, with less memory from the first time on that there is not
        enough.

        Raises `NonFiniteError` that names layer and `prompt` when activations or a gradient are not finite,
        `InvalidValueError` for a target that is no token of the model, and for want of memory.
        """
        spared = bool(self._economy.recompute)
        while True:
            try:
                return self._measured(ids, prompt)
            except (MemoryError, RuntimeError) as error:
                if not (isinstance(error, MemoryError) or _NO_MEMORY.search(str(error))):
                    raise
                if spared:
                    what = "fewer, or attention 'sdpa', for the memory there is"
                    raise wrong("tokens", what, len(ids)) from error
            log.warning("%s: out of memory; from here on layers are computed again, not remembered", prompt)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self._spare(again=True)
            spared = True

    def _spare(self, again: bool) -> None:
        self._economy = economy(self._loaded.model, self._layers, self._short, again)
        for note in self._economy.notes:
            log.warning("more memory than announced: %s", note)

    def _measured(self, ids: Int[np.ndarray, "position"], prompt: str) -> Arrays:
        model, family, job = self._loaded.model, self._loaded.family, self._job
        found: Arrays = {}
        calls: list[Call] = []
        states: dict[str, list[Any]] = {kind: [] for kind in OF_STATES if kind in job.influences}
        rollouts = Rollouts(job.tokens, job.rollouts, self.gains, calls) if job.rollouts else None

        def see(seen: SeenLayer) -> None:
            seen.check_finite(prompt)
            self._keep(seen.layer, found, self._of_layer(seen))
            if rollouts is not None:
                rollouts.see(seen)
            for kind, held in states.items():
                if seen.live[kind] is None or not (family.checked or kind == "layers"):
                    what, got = (
                        f"a family whose layers show {kind}",
                        f"{self._loaded.name} ({family.model_type})",
                    )
                    raise wrong("model", what, got=got, kind=ModelError)
                held.append(seen.live[kind])

        given = torch.from_numpy(ids)
        saving = self._economy if WHOLE_GRAPH.isdisjoint(job.influences) else Economy()
        with recording(self._layers if rollouts else (), calls), Capture(model, family, see):
            prediction = predict(model, given, saving)
        found |= rollouts.rows() if rollouts is not None else {}
        kinds = [kind for kind in job.influences if kind not in KINDS_OF_LAYERS]
        found |= gradients(prediction, given, ("probability", *kinds), self._target, states)
        for kind in [kind for kind in job.influences if kind in KINDS_OF_LAYERS]:
            with Capture(model, family, lambda seen: None, KINDS_OF_LAYERS[kind]):
                prediction = predict(model, given)
            found[INFLUENCES[kind]] = gradients(prediction, given)["influence"]
        if self._loaded.encoder:
            found = {name: values for name, values in found.items() if not QUANTITIES[name].causal}
        for name, values in found.items():
            if name.startswith(("influence", "rollout", "loss")) and not np.isfinite(values).all():
                raise NonFiniteError(f"model: the {name} is not finite in {prompt}")
        return found

    def _of_layer(self, seen: SeenLayer) -> Arrays:
        """What is kept of one layer: λ and norms, and the means over blocks of queries."""
        gains, energy = self.gains, None
        plain = gains is not None and not gains.stretched[seen.layer]
        scale = torch.ones(seen.scores.tokens) if plain else stretch_of(seen)
        if gains is not None and self._job.tokens <= KERNEL_TOKENS:
            energy = gains.weights(seen.layer, seen.stream)
        wide = {name: getattr(self._job, name) for name in ("dense_logits", "head_kernels")}
        found = mixings(seen, scale) | layer_means(seen, energy, None if plain else scale, **wide)
        if self._additive and seen.output is not None:
            share = feed_forward_share(seen.stream, seen.update, seen.output)
            found["feed_forward_share"] = np.array(share)
        return found

    def _keep(self, layer: int, found: Arrays, values: Arrays) -> None:
        """Put one layer's values in their place; layers for which there are none stay NaN, tokens −1."""
        for name, value in values.items():
            if name not in found:
                empty = -1 if value.dtype.kind == "i" else np.nan
                found[name] = np.full((len(self._layers), *value.shape), empty, dtype=value.dtype)
            found[name][layer] = value
