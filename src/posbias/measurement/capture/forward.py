"""Seeing inside a forward pass without changing it.

A torch function mode watches every operation inside a decoder layer (`tracer.py` says how). What enters and
leaves the softmax, or what is handed to a fused attention, gives the scores; the operand finally added to the
stream is Attn(X) as really added, after output projections, norms and multipliers, whatever the family has
there (a hook on the attention module gets that wrong in several families). Cosines and sines of rotations
arrive as an argument of the layer; from there on a second, unrotated copy of queries and keys is computed
next to the model's own. One layer is held at a time, and handed over when it has returned: what is then computed
of it is no part of the layer, and nothing that follows a layer's operations follows that.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

from posbias.core.errors import ModelError, NonFiniteError
from posbias.measurement.capture.recurrences import Effective, intercept
from posbias.measurement.capture.scores import Factored, Given, Scores, all_finite
from posbias.measurement.capture.tracer import Derived, Twin, Watch, mark_all, set_mark, stream_of, unrotated
from posbias.measurement.models.families import RECURRENCES, Family, decoder_layers, part


@dataclass(frozen=True)
class SeenLayer:
    """What one decoder layer did with one prompt; tensors are detached, in the model's own precision.

    `stream` is the residual stream X entering the layer, `update` is Attn(X) as added to it, `output` the stream
    that leaves the layer; of several streams (hyper-connections) all of them, joined. `scores` are the
    layer's logits and attention, `content` those of the same attention with positions taken out: rotation by
    no angle, biases that depend on position left away (None where that cannot be determined); embedded positions
    are part of it, and so is a factor on the queries that grows with their position; `turned` says whether the
    layer rotates. Under ALiBi the logits
    of each row are shifted so that the bias of a token to itself is 0. `values` are per query head, `mixed` is
    attention · values as it enters the output projection, `output_weight` that projection (None where
    something else comes first). `live`, parts of the graph, are what the layer gives and the sums by which
    attention and feed-forward block enter the stream. Of a layer without a softmax `scores` are its `Effective`
    matrices.
    """

    layer: int
    stream: Float[Tensor, "position hidden"]
    update: Float[Tensor, "position hidden"]
    scores: Scores
    content: Factored | None = None
    turned: bool = False
    values: Float[Tensor, "head position channel"] | None = None
    mixed: Float[Tensor, "position _"] | None = None
    output_weight: Float[Tensor, "_ _"] | None = None
    output: Float[Tensor, "position hidden"] | None = None
    live: Mapping[str, Tensor | None] = field(default_factory=dict)

    @property
    def logits(self) -> Float[Tensor, "head query key"]:
        """All logits at once, for short prompts; −inf where hidden."""
        return self.scores.dense()[0]

    @property
    def attention(self) -> Float[Tensor, "head query key"]:
        """All attention at once, for short prompts."""
        return self.scores.dense()[1]

    def check_finite(self, prompt: str) -> None:
        """Raise `NonFiniteError`, naming layer and `prompt`, when stream, attention or update is not finite."""
        finite = {
            "stream": all_finite(self.stream),
            "attention": self.scores.finite(),
            "update": all_finite(self.update),
        }
        for name, right in finite.items():
            if not right:
                raise NonFiniteError(f"model: the {name} of layer {self.layer} is not finite in {prompt}")


class Capture(TorchFunctionMode):
    """Calls `see(SeenLayer)` once for each decoder layer while the block runs one forward pass of one prompt.

    Eager and fused (sdpa) attention are seen, and the recurrences of `RECURRENCES`; gradients may be on. Updates
    of layers whose scores are of types `constant` are added without their gradient. On leaving the block, raises
    `ModelError` when a layer was not seen. Use a new one for each forward pass.
    """

    def __init__(self, model: Any, family: Family, see: Callable[[SeenLayer], None], constant: tuple = ()):
        super().__init__()
        self._constant, self._undo = constant, ExitStack()
        self._layers = decoder_layers(model)
        self._family = family
        self._kind = family.positional_kind(model.config)
        self._see = see
        self._seen: set[int] = set()
        self._watch: Watch | None = None
        self._rotates = _mentions_rotation(model.config)

    def __enter__(self):
        for index, layer in enumerate(self._layers):
            entering = layer.register_forward_pre_hook(partial(self._enter, index), with_kwargs=True)
            self._undo.enter_context(entering)
            self._undo.enter_context(layer.register_forward_hook(partial(self._leave, index)))
        name = RECURRENCES.get(self._family.model_type, "")
        intercept(self._undo, self._layers, name, self._recurred)
        return super().__enter__()

    def __exit__(self, kind, error, trace):
        self._undo.close()
        self._watch = None
        super().__exit__(kind, error, trace)
        unseen = [index for index in range(len(self._layers)) if index not in self._seen]
        if error is None and unseen:
            raise ModelError(
                f"model: expected a softmax attention in each of {len(self._layers)} layers, got none in layer "
                f"{', '.join(map(str, unseen[:8]))}; run with "
                f"attn_implementation={' or '.join(map(repr, self._family.attention))}; of layers without a "
                "softmax docs/measure.md says which are known"
            )

    def _enter(self, index: int, layer: Any, positional: tuple, named: dict[str, Any]) -> None:
        # a layer run again, as activation checkpointing does, is not seen again
        if index not in self._seen:
            self._watch = Watch(stream_of(positional, named), self._constant)
            self._mark_rotations(layer, named.get("position_embeddings"))

    def _leave(self, index: int, layer: Any, positional: tuple, output: Any) -> None:
        watch, self._watch = self._watch, None
        if watch is None or watch.scores is None or watch.update is None:
            return
        self._seen.add(index)
        with torch.no_grad():
            self._see(self._layer(index, watch, output if isinstance(output, Tensor) else output[0]))

    def _recurred(self, call: Callable[[], Any], matrices: Callable[[Tensor], Effective]) -> Any:
        """Run the recurrence of a layer, whose own operations are none of the layer's, and note its matrices."""
        watch, self._watch = self._watch, None
        result = call()
        if watch is not None:
            output = result if isinstance(result, Tensor) else result[0]
            scores = watch.scores = matrices(output)
            watch.values, watch.mixed = scores.values, scores.mixed
            mark_all(output, Derived())
        self._watch = watch
        return result

    def _mark_rotations(self, layer: Any, given: Any) -> None:
        """Give the rotations that this layer will use their twins, which turn by no angle."""
        if isinstance(given, Tensor) and given.is_complex():
            pairs = [(given, given.detach().abs().to(given.dtype))]
        elif isinstance(given, (tuple, list)) and len(given) == 2:
            pairs = list(zip(given, unrotated((given[0], given[1])), strict=True))
        elif self._family.rotation is not None:
            table = part(layer, self._family.rotation)
            pairs = [(table, torch.cat(unrotated(table.detach().chunk(2, dim=-1)), dim=-1))]
        else:
            return
        self._rotates = False
        for tensor, twin in pairs:
            set_mark(tensor, Twin(twin))
            self._undo.callback(set_mark, tensor, None)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self._watch is None:
            return func(*args, **(kwargs or {}))
        return self._watch.run(func, args, kwargs or {})

    def _layer(self, index: int, watch: Watch, output: Tensor) -> SeenLayer:
        """The layer just completed."""
        assert watch.update is not None
        scores, content = self._separated(watch)
        return SeenLayer(
            layer=index,
            stream=watch.stream.detach()[0].flatten(1).to(watch.update.device),
            update=watch.update.detach()[0].flatten(1),
            scores=scores,
            content=content,
            turned=watch.turned,
            values=watch.values,
            mixed=watch.mixed,
            output_weight=watch.output_weight,
            output=output.detach()[0].flatten(1),
            live={"layers": output, "attention": watch.joined, "feed_forward": watch.last},
        )

    def _separated(self, watch: Watch) -> tuple[Scores, Factored | None]:
        """The scores, and what they are without positions when the kind of encoding allows it."""
        scores, plain = watch.scores, watch.plain
        assert isinstance(scores, (Given, Factored, Effective))
        unturned = self._kind == "rotary" or (self._kind == "inferred" and self._rotates)
        if plain is None or (unturned and not watch.turned):
            return scores, None
        if self._kind == "alibi" or (self._kind == "inferred" and not watch.turned):
            scores = replace(scores, shift=scores.diagonal() - plain.diagonal())
        return scores, plain


def _mentions_rotation(config: Any) -> bool:
    """Whether a configuration speaks of rotary encodings in any key that holds something."""
    keys = config.get_text_config().to_dict()
    return any(("rope" in key or "rotary" in key) and value is not None for key, value in keys.items())
