"""Remedies inside an opened model: its passes are treated, by name, while a block runs.

    with intervened(loaded, FirstTokenScale(0.5)) as treated:
        treated.model(ids)

An intervention is a frozen value; kind and parameters are the `treatment` of the model in the block, and so part
of every fingerprint. No weight is written: the `forward` of some modules is replaced, and given back when the
block ends, whatever ends it. An intervention needs one or two helpers. `_wrap` stands before a module (the model,
a layer, what makes rotary tables), and may change what it is called with and what it returns. `_on_logits` changes
the logits of a layer's attention just before their softmax; attention is eager meanwhile. `_in_attention` changes
the values that attention is multiplied with, too, eager or fused. A new intervention is a class here, and its name
in `Intervention`; its `install` refuses by name the families that it does not fit.
"""

import functools
import inspect
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from posbias.core.errors import ModelError, PosbiasError, wrong
from posbias.core.spec import NaturalNumber, Positive, Positives, encode, tag, value
from posbias.measurement.capture.forward import Capture, SeenLayer
from posbias.measurement.models.families import decoder_config, decoder_layers
from posbias.measurement.models.loading import LoadedModel
from posbias.measurement.quantities.influence import predict
from posbias.profiles.heads import Head, parts_of

Logits = Float[Tensor, "batch head query key"]
Values = Float[Tensor, "batch head key channel"]
Change = Callable[[Tensor], Tensor]
Arguments = dict[str, Any]
"""What a module is called with, by name."""


@contextmanager
def intervened(loaded: LoadedModel, *interventions: "Intervention") -> Iterator[LoadedModel]:
    """Treat the passes of a model while the block runs; yields the model with its treatment.

    Raises `InvalidValueError` for a model that is treated already, `ModelError` for an encoder, for a family
    outside the table, and where an intervention does not fit the family.
    """
    loaded.need_causal("interventions")
    if not loaded.verified:
        raise _refused(loaded, "a family of the table for interventions")
    if loaded.treated:
        raise wrong("interventions", "all of them at once", got="a model that is treated already")
    name, parts = " + ".join(one.kind for one in interventions), [encode(one) for one in interventions]
    with ExitStack() as undo:
        for one in interventions:
            one.install(loaded, undo)
        yield replace(loaded, treatment={"name": name, "parts": parts})


# --- where a pass can be treated ------------------------------------------------------------------------------


def _wrap(undo: ExitStack, module: nn.Module, around: Callable[[Callable[..., Any], Arguments], Any]) -> None:
    """Let `around(forward, arguments)` run where a module's own `forward` would, until `undo`."""
    forward, had = module.forward, vars(module).get("forward")
    signature = inspect.signature(forward)
    rest = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), "")

    @functools.wraps(forward)
    def treated(*given: Any, **named: Any) -> Any:
        arguments = signature.bind(*given, **named).arguments
        return around(forward, {**arguments.pop(rest, {}), **arguments})

    undo.callback(lambda: setattr(module, "forward", had) if had else delattr(module, "forward"))
    module.forward = treated


class _InAttention(TorchFunctionMode):
    """Changes logits just before a softmax, or the values of the query heads that attention is multiplied with."""

    def __init__(self, logits: Change | None = None, values: Change | None = None):
        super().__init__()
        self._logits, self._values, self._heads = logits, values, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (functional.softmax, torch.softmax, Tensor.softmax) and args[0].dim() == 4:
            self._heads = args[0].shape[1]
            args = args if self._logits is None else (self._logits(args[0]), *args[1:])
        elif self._values and func is functional.scaled_dot_product_attention:
            query, key, values, *rest = args
            shared = query.shape[1] // values.shape[1]
            key, values = (one.repeat_interleave(shared, dim=1) for one in (key, values))
            args = (query, key, self._values(values), *rest)
        elif self._values and self._heads and func.__name__ in ("matmul", "__matmul__", "bmm"):
            # the first product behind a softmax; some families join batch and head
            values = args[1].reshape(-1, self._heads, *args[1].shape[-2:])
            args, self._heads = (args[0], self._values(values).reshape(args[1].shape)), 0
        return func(*args, **(kwargs or {}))


def _in_attention(
    loaded: LoadedModel, undo: ExitStack, layers: Container[int], **changes: Callable[[int, Tensor], Tensor]
) -> None:
    """Let `changes`, of `logits` or `values`, be made by layer and tensor in the attention of some layers."""

    def around(number: int, forward: Any, arguments: Arguments) -> Any:
        with _InAttention(**{name: functools.partial(one, number) for name, one in changes.items()}):
            return forward(**arguments)

    for number, layer in enumerate(decoder_layers(loaded.model)):
        if number in layers:
            _wrap(undo, layer, functools.partial(around, number))


def _on_logits(loaded: LoadedModel, undo: ExitStack, treat: Callable[[int, Logits], Logits]) -> None:
    """Let `treat(layer, logits)` change what enters the softmax of every layer, −inf or very low where hidden."""
    if "eager" not in loaded.family.attention:
        raise _refused(loaded, "a family with eager attention for changes of its logits")
    undo.callback(loaded.model.set_attn_implementation, loaded.attention)
    loaded.model.set_attn_implementation("eager")
    _in_attention(loaded, undo, range(len(decoder_layers(loaded.model))), logits=treat)


def _rows(logits: Logits) -> Int[Tensor, "query"]:
    """Positions of the queries: they are the last of the keys."""
    return torch.arange(logits.shape[-1], device=logits.device)[-logits.shape[-2] :]


def _past(arguments: Arguments) -> int:
    """Tokens whose keys and values earlier passes left in a cache."""
    cache = arguments.get("past_key_values")
    return 0 if cache is None else cache.get_seq_length()


def _refused(loaded: LoadedModel, expected: str, why: str = "") -> PosbiasError:
    return wrong("model", expected, got=f"{loaded.name} ({loaded.family.model_type}){why}", kind=ModelError)


# --- changes of logits ------------------------------------------------------------------------------------------


@value
class QueryTemperature:
    """Temperature by position: the logits of query i, biases included, are multiplied by b + s·ln(i + 1).

    Place: before every softmax. `scale` is s, `bias` b. Families: those of the table with eager attention and no
    learned sinks, whose logits are no products with a query. Source: scalable softmax (2501.19399), here with the
    same s and b in every head.
    """

    scale: float
    bias: float = 1.0
    kind: Literal["query_temperature"] = tag(default="query_temperature")

    def install(self, loaded: LoadedModel, undo: ExitStack) -> None:
        """Treat every pass until `undo`. Raises `ModelError` for learned sinks."""
        if loaded.family.sinks:
            raise _refused(loaded, f"a family without learned sinks for {self.kind}")

        def treat(layer: int, logits: Logits) -> Logits:
            factors = self.bias + self.scale * torch.log1p(_rows(logits).to(logits.dtype))
            hidden = logits <= torch.finfo(logits.dtype).min / 2
            return (logits * factors[:, None]).masked_fill(hidden, -torch.inf)

        _on_logits(loaded, undo, treat)


@value
class FirstTokenScale:
    """Attention to the first token times f, rows renormalised: A'_ij = A_ij f^[j = 0] / Σ_k A_ik f^[k = 0].

    Place: ln f is added to the logits of key 0 before every softmax. Families: those of the table with eager
    attention. Source: ZeroTuning (2505.11739), here with the same f in every head.
    """

    factor: Positive
    kind: Literal["first_token_scale"] = tag(default="first_token_scale")

    def install(self, loaded: LoadedModel, undo: ExitStack) -> None:
        """Treat every pass until `undo`."""

        def treat(layer: int, logits: Logits) -> Logits:
            first = torch.arange(logits.shape[-1], device=logits.device) == 0
            return logits + first * torch.tensor(self.factor, dtype=logits.dtype).log()

        _on_logits(loaded, undo, treat)


@value
class RegionRemoved:
    """Attention to a part of the keys removed and rows renormalised: A'_ij = A_ij [j seen] / Σ_k A_ik [k seen].

    `region`: a part as of `posbias.head_shares`, of all keys of a pass; the own key of a query stays. Place:
    before every softmax. Families: those of the table with eager attention and no learned sinks. Source:
    attention knockout (2304.14767), here in all layers and heads.
    """

    region: Literal["sink", "first", "middle", "last"]
    kind: Literal["region_removed"] = tag(default="region_removed")

    def install(self, loaded: LoadedModel, undo: ExitStack) -> None:
        """Treat every pass until `undo`. Raises `ModelError` for learned sinks."""
        if loaded.family.sinks:
            raise _refused(loaded, f"a family without learned sinks for {self.kind}")

        def treat(layer: int, logits: Logits) -> Logits:
            key = torch.arange(logits.shape[-1], device=logits.device)
            start, stop = parts_of(len(key))[self.region]
            removed = (key >= start) & (key < stop) & (key != _rows(logits)[:, None])
            return logits.masked_fill(removed, -torch.inf)

        _on_logits(loaded, undo, treat)


# --- outputs of heads -------------------------------------------------------------------------------------------


@value
class KnockOut:
    """Outputs of some heads replaced by a constant each: A_h V_h becomes o_h at every position.

    `heads`: layer and head; `outputs`: o_h of each, 0 of those without, `head_means` for their means. Place: all
    values of a head are o_h, since rows of attention sum to 1 (under learned sinks to less). Layers of other heads
    are left alone. Families: those of the table. Source: ablation of heads (1905.10650), by means 2211.00593.
    """

    heads: tuple[Head, ...]
    outputs: tuple[tuple[float, ...], ...] = ()
    kind: Literal["knock_out"] = tag(default="knock_out")

    def install(self, loaded: LoadedModel, undo: ExitStack) -> None:
        """Treat every pass until `undo`. Raises `InvalidValueError` for heads that there are not."""
        layers = decoder_layers(loaded.model)
        count = decoder_config(loaded.model.config).num_attention_heads
        if any(layer >= len(layers) or head >= count for layer, head in self.heads):
            raise wrong("heads", f"layers below {len(layers)} with heads below {count}", self.heads)
        held = {**dict.fromkeys(self.heads, (0.0,)), **dict(zip(self.heads, self.outputs, strict=False))}

        def change(number: int, values: Values) -> Values:
            values = values.clone()
            for (layer, head), output in held.items():
                if layer == number:
                    values[:, head] = values.new_tensor(output)
            return values

        _in_attention(loaded, undo, {layer for layer, _ in self.heads}, values=change)


@contextmanager
def head_scales(
    loaded: LoadedModel, outputs: Float[np.ndarray, "layer head _"]
) -> Iterator[Float[Tensor, "layer head"]]:
    """Scales s = 1 with gradients while a block runs: z_h = A_h V_h becomes o_h + s_h (z_h − o_h), o `outputs`.

    −∂y/∂s_h = −⟨∂y/∂z_h, z_h − o_h⟩ is what `KnockOut` of head h alone changes in y, to first order. Raises as
    `intervened`. Source: importance of heads (1905.10650), with its sign; attribution patching (2310.10348).
    """
    scales, given = torch.ones(outputs.shape[:2], requires_grad=True), torch.from_numpy(outputs)

    def change(number: int, values: Values) -> Values:
        output = given[number, :, None].to(values)
        return output + scales[number, :, None, None].to(values) * (values - output)

    with intervened(loaded, KnockOut(())), ExitStack() as undo:
        _in_attention(loaded, undo, range(len(scales)), values=change)
        yield scales


def head_means(loaded: LoadedModel, prompts: Sequence[Any]) -> Float[np.ndarray, "layer head channel"]:
    """The mean of A_h V_h of every head over positions and prompts [position]. Raises as `Capture`."""
    means: list[Any] = []

    def see(seen: SeenLayer) -> None:
        mixed: Any = seen.mixed  # known in every family of the table
        means.append(mixed.unflatten(1, (seen.scores.heads, -1)).double().mean(dim=0).cpu().numpy())

    for ids in prompts:
        with torch.no_grad(), Capture(loaded.model, loaded.family, see):
            predict(loaded.model, torch.as_tensor(ids))
    return np.reshape(means, (len(prompts), -1, *means[0].shape)).mean(axis=0)


# --- changes of positions ---------------------------------------------------------------------------------------


class _ByHead:
    """Cosines or sines by head [batch head position channel], where layers multiply with shared ones."""

    def __init__(self, table: Tensor):
        self.table, self.shape = table, table.shape

    def __getitem__(self, index: Any) -> "_ByHead":
        return self

    unsqueeze = __getitem__

    def __rmul__(self, states: Tensor) -> Tensor:
        shared, rest = divmod(states.shape[1], self.shape[1])
        if rest or not shared:
            what = f"1 number a row, or {states.shape[1]}, one a key head"
            raise wrong("factors", what, got=f"{self.shape[1]}")
        return states * self.table.repeat_interleave(shared, dim=1)


@value
class PositionScale:
    """Rotary positions divided by a factor: query i and key j are turned by θ_c (i − j) / f.

    `factors`: a row for all layers or one each; in it a number for all heads or one for each key head, which holds
    for the query heads that share it. Place: cosines and sines, which every layer gets of i / f. Families: those
    of the table whose layers are given cosines and sines. Sources: uniform 2306.15595, by layer 2503.04355, by
    head 2403.04797.
    """

    factors: Annotated[tuple[Positives, ...], Field(min_length=1)]
    kind: Literal["position_scale"] = tag(default="position_scale")

    def install(self, loaded: LoadedModel, undo: ExitStack) -> None:
        """Treat every pass until `undo`. Raises `ModelError` for other families.

        Raises `InvalidValueError` where rows do not fit the layers, or, in a pass, numbers the heads.
        """
        layers = decoder_layers(loaded.model)
        makers = [one for one in loaded.model.modules() if "rotary" in type(one).__name__.lower()]
        biased = loaded.family.positional_kind(loaded.model.config) == "alibi"
        if not makers or biased or loaded.family.model_type == "llama4_text":
            raise _refused(loaded, f"a family whose layers are given cosines and sines for {self.kind}")
        if len(self.factors) not in (1, len(layers)):
            raise wrong("factors", f"1 or {len(layers)} rows, one a layer", got=f"{len(self.factors)}")

        def make(forward: Any, arguments: Arguments) -> Any:
            ids = arguments["position_ids"]
            return lambda factor: forward(**arguments | {"position_ids": ids / factor})

        def around(factors: tuple[float, ...], forward: Any, arguments: Arguments) -> Any:
            tables = [arguments["position_embeddings"](factor) for factor in factors]
            by_head = [_ByHead(torch.stack(one, dim=1)) for one in zip(*tables, strict=True)]
            own = by_head if len(factors) > 1 else tables[0]
            return forward(**arguments | {"position_embeddings": own})

        for maker in makers:
            _wrap(undo, maker, make)
        for number, layer in enumerate(layers):
            _wrap(undo, layer, functools.partial(around, self.factors[number % len(self.factors)]))


# --- documents ------------------------------------------------------------------------------------------------


Bounds = tuple[NaturalNumber, ...]
"""Where each document begins, in tokens, and where the last ends: what stands between two is the former's."""


def _sizes(bounds: Bounds) -> Int[Tensor, "document"]:
    """Tokens of each document. Raises `InvalidValueError` for fewer than two, and for empty ones."""
    sizes = torch.tensor(bounds).diff()
    if len(sizes) < 2 or sizes.min() < 1:
        raise wrong("bounds", "three or more rising numbers of tokens", bounds)
    return sizes


@value
class SeparateDocuments:
    """Documents that neither see nor follow each other, so that their order cannot matter.

    Place: the mask of every layer, and the positions. Query i sees key j ≤ i unless they stand in two documents;
    the tokens of each document count from where the first one begins, p_j = j − b_k + b_0, and what comes behind
    from where the longest ends. Windows go by p_i − p_j. Families: those of the table that take masks and
    positions; where biases, windows or chunks go by the index of a key they are refused. Sources: Set-Based
    Prompting (2406.06581), Set-LLM (2505.15433).
    """

    bounds: Bounds
    kind: Literal["separate_documents"] = tag(default="separate_documents")

    def layout(self, tokens: int) -> tuple[Int[Tensor, "token"], Int[Tensor, "token"]]:
        """Of each token its document, from 1 (0: before them; one more than there are: behind), and position."""
        begins = torch.tensor(self.bounds)
        behind = begins[-1:] - _sizes(self.bounds).max()
        shifts = torch.cat([begins[:1], begins[:-1], behind]) - begins[0]
        document = torch.bucketize(torch.arange(tokens), begins, right=True)
        return document, torch.arange(tokens) - shifts[document]

    def install(self, loaded: LoadedModel, undo: ExitStack) -> None:
        """Treat every pass until `undo`. Raises `ModelError` where anything goes by the index of a key."""
        biased = loaded.family.positional_kind(loaded.model.config) == "alibi"
        if biased or loaded.family.model_type in ("gpt_neo", "llama4_text"):
            why = f", whose {'biases' if biased else 'windows'} go by the index of a key"
            raise _refused(loaded, f"a family that takes masks and positions for {self.kind}", why)
        layout: list[Tensor] = []

        def whole(forward: Any, arguments: Arguments) -> Any:
            ids, past = arguments["input_ids"], _past(arguments)
            layout[:] = self.layout(past + ids.shape[1])
            # without a mask, positions that begin anew are taken for texts of their own
            mask = {"attention_mask": ids.new_ones(len(ids), past + ids.shape[1])}
            positions = layout[1][past:].expand(len(ids), -1).to(ids.device)
            return forward(**mask | arguments | {"position_ids": positions})

        def around(forward: Any, arguments: Arguments) -> Any:
            stream, mask = arguments["hidden_states"], arguments.get("attention_mask")
            document, position = (one.to(stream.device) for one in layout)
            key = torch.arange(len(document), device=stream.device)
            query = key[-stream.shape[1] :, None]
            lowest, width = torch.finfo(stream.dtype).min, len(key)
            if mask is not None:
                plain = mask if mask.dtype == torch.bool else mask > lowest / 2
                width = int((query[:, 0] - plain[0, 0].int().argmax(dim=-1)).max()) + 1
            seen = (key <= query) & (position[query] - position < width)
            seen &= (document[query] == document) | (document == 0) | (document[query] == len(self.bounds))
            hides = torch.zeros_like(seen, dtype=stream.dtype).masked_fill(~seen, lowest)
            return forward(**arguments | {"attention_mask": hides[None, None]})

        _wrap(undo, loaded.model, whole)
        for layer in decoder_layers(loaded.model):
            _wrap(undo, layer, around)


@value
class CalibratedAttention:
    """Attention to documents by how much it is above that to a dummy document in the same place.

    Place: before every softmax, in the rows behind the documents. With a_k the attention of a row to all of
    document k, d_k the same in a pass where every document is `dummy` (its tokens, repeated or cut to the
    document's length), α = softmax((a − d) / t): A'_ij = A_ij · α_k Σ_l a_l / a_k for j in document k. Documents
    together keep what they had, and so does every other key. Families: those of the table with eager attention.
    Source: 2406.16008; here by row and head, and with one more pass for all places.
    """

    bounds: Bounds
    dummy: Annotated[tuple[NaturalNumber, ...], Field(min_length=1)]
    temperature: Positive = 5e-5
    kind: Literal["calibrated_attention"] = tag(default="calibrated_attention")

    def install(self, loaded: LoadedModel, undo: ExitStack) -> None:
        """Treat every pass until `undo`; one with keys of earlier passes raises `InvalidValueError`."""
        sizes, keys = _sizes(self.bounds), slice(self.bounds[0], self.bounds[-1])
        filled = torch.cat([torch.tensor(self.dummy * size)[:size] for size in sizes.tolist()])
        dummies = dict[int, Tensor]()

        def whole(forward: Any, arguments: Arguments) -> Any:
            if _past(arguments):
                raise wrong("past_key_values", f"None with {self.kind}", got="keys of earlier passes")
            ids = arguments["input_ids"].clone()
            ids[:, keys] = filled.to(ids.device)
            dummies.clear()
            with torch.no_grad():
                forward(**arguments | {"input_ids": ids, "past_key_values": None})
            return forward(**arguments)

        def treat(layer: int, logits: Logits) -> Logits:
            shares = logits.softmax(dim=-1)[..., keys].split(sizes.tolist(), dim=-1)
            mass = torch.stack([one.sum(dim=-1) for one in shares], dim=-1)
            if layer not in dummies:
                dummies[layer] = mass
                return logits
            # what a window hides of a row stays hidden
            above = (mass - dummies.pop(layer)).masked_fill(mass == 0, -torch.inf) / self.temperature
            factors = above.softmax(dim=-1) * mass.sum(dim=-1, keepdim=True) / mass
            taken = (mass > 0) & (_rows(logits) >= keys.stop)[:, None]
            added = torch.where(taken, factors.log(), 0).repeat_interleave(sizes.to(mass.device), dim=-1)
            return logits + functional.pad(added, (keys.start, logits.shape[-1] - keys.stop))

        _wrap(undo, loaded.model, whole)
        _on_logits(loaded, undo, treat)


_OfLogits = QueryTemperature | FirstTokenScale | RegionRemoved | CalibratedAttention
Intervention = _OfLogits | KnockOut | PositionScale | SeparateDocuments
"""All interventions: the registry."""
INTERVENTIONS = get_args(Intervention)
