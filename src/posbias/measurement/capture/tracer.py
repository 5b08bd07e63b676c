"""Following one layer's attention through the operations it is made of.

Each tensor of interest carries a mark, and every operation hands marks on. A rotated tensor carries its
`Twin`: what it would be had the rotation turned by no angle. Where queries meet keys the result carries the
`Product`: the two factors and, after each scalar operation on the way to the softmax, the scale and soft cap
so far. What leaves the softmax is `Weights`, its product with the values `Mixed` for as long as it is merely
moved about, and anything computed from that is `Derived`, until it is added to the stream: that operand is
the layer's update. Nothing here knows a family by name, and nothing the model computes is touched.

A mark is an attribute of the tensor object, so that it lives no longer than the tensor and costs no memory of
its own. A tensor has one mark at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from posbias.core.errors import ModelError, wrong
from posbias.measurement.capture.scores import Factored, Given, Scores, single

_MARK = "_posbias_mark"
_MULTIPLICATIONS = {"mul", "__mul__", "__rmul__", "__imul__", "mul_", "multiply"}
_DIVISIONS = {"div", "__truediv__", "__itruediv__", "div_", "true_divide"}


@dataclass(frozen=True)
class Twin:
    """The same tensor with positions taken out."""

    tensor: Any


@dataclass(frozen=True)
class Product:
    """Scores on their way: queries and keys without rotation, scale · q·k or cap · tanh(scale/cap · q·k).

    `scale` is None once something was multiplied that is no number. `before` holds the scores as they were
    before a sink was put next to them.
    """

    query: Tensor
    key: Tensor
    scale: float | None = 1.0
    cap: float | None = None
    turned: bool = False
    before: Tensor | None = None


@dataclass(frozen=True)
class Weights:
    """Attention weights: the result of the softmax, moved about or not."""


@dataclass(frozen=True)
class Mixed:
    """Attention · values, moved about but otherwise untouched."""


@dataclass(frozen=True)
class Derived:
    """Computed from attention."""


def scored(product: Product, name: str, args: tuple, scores: Tensor) -> Product:
    """The mark of scores after one more operation: numbers multiply, a tanh caps, additions are positions."""
    if name in _MULTIPLICATIONS or name in _DIVISIONS:
        others = [item for item in args if item is not scores]
        if not others or torch.as_tensor(others[0]).numel() != 1 or product.scale is None:
            return replace(product, scale=None)
        number = float(others[0])
        factor = number if name in _MULTIPLICATIONS else 1 / number
        cap = None if product.cap is None else product.cap * factor
        return replace(product, scale=product.scale * factor, cap=cap)
    if name in ("tanh", "tanh_"):
        return replace(product, cap=1.0)
    if name == "cat":
        return replace(product, before=scores.detach())
    return product


def twin_arguments(name: str, args: tuple, kwargs: dict) -> tuple[list, dict]:
    """The arguments with every rotated tensor replaced by its twin; what is written into is never the model's."""
    given, named = tree_map_only(Tensor, plain, (list(args), kwargs))
    if in_place(name) and isinstance(args[0], Tensor) and not isinstance(mark_of(args[0]), Twin):
        given[0] = args[0].detach().clone()
    return given, named


def in_place(name: str) -> bool:
    """Whether an operation of this name writes into its first operand."""
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i") or "set" in name


def mark_base(view: Tensor) -> None:
    """After a write into a view of a whole without a twin: give the whole one, with the view's in its place."""
    base, mark = view._base, mark_of(view)
    if base is None or not isinstance(mark, Twin) or isinstance(mark_of(base), Twin):
        return
    twin = base.detach().clone()
    place = view.storage_offset() - base.storage_offset()
    twin.as_strided(view.size(), view.stride(), place).copy_(mark.tensor)
    set_mark(base, Twin(twin))


def plain(tensor: Tensor) -> Tensor:
    """The twin of a rotated tensor, or the tensor itself; detached."""
    mark = mark_of(tensor)
    return (mark.tensor if isinstance(mark, Twin) else tensor).detach()


def mark_twins(result: Any, twins: Any) -> None:
    """Mark each tensor of a result with the tensor in the same place of its twin."""
    for item, twin in zip(flat([result]), flat([twins]), strict=True):
        if isinstance(item, Tensor):
            set_mark(item, Twin(twin))


def mark_all(result: Any, mark: Any) -> None:
    """Mark each tensor of a result that holds numbers (not truth values or indices)."""
    for item in flat([result]):
        if isinstance(item, Tensor) and (item.is_floating_point() or item.is_complex()):
            set_mark(item, mark)


def heads_of(tensor: Tensor) -> Tensor:
    """[1, head, position, channel] or [head, position, channel] → [head, position, channel], detached."""
    return tensor.detach().flatten(0, -3)


def flat(items: list) -> list:
    """Open lists and tuples one level: operands and results of torch functions nest no deeper."""
    return [inner for item in items for inner in (item if isinstance(item, (list, tuple)) else [item])]


def mark_of(tensor: Tensor) -> Any:
    """Return the mark of a tensor, or None."""
    return getattr(tensor, _MARK, None)


def set_mark(tensor: Tensor, mark: Any) -> None:
    """Mark a tensor; None takes its mark away."""
    setattr(tensor, _MARK, mark)
    if mark is None:
        delattr(tensor, _MARK)


def unrotated(sin_or_cos: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the pair with √(cos² + sin²) for the cosine and 0 for the sine, in the order given.

    The sine is the one that is zero at the first position.
    """
    one, other = (single(item.detach()) for item in sin_or_cos)
    length, nothing = torch.hypot(one, other).to(sin_or_cos[0].dtype), torch.zeros_like(sin_or_cos[0])
    if bool((other[..., 0, :] == 0).all()):
        return length, nothing
    return nothing, length


_SDPA = functional.scaled_dot_product_attention
_SOFTMAX = {functional.softmax, torch.softmax, Tensor.softmax}
_ADDITIONS = {"add", "__add__", "__radd__", "__iadd__", "add_"}
_PRODUCTS = {"matmul", "__matmul__", "bmm"}
_MOVES = {
    *("transpose", "permute", "reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze", "swapaxes"),
    *("contiguous", "clone", "to", "type", "type_as", "float", "dropout", "__getitem__", "__get__", "expand"),
}


class Watch:
    """Watches the operations of one layer until its attention update is added to the stream, then additions alone.

    Afterwards `update`, `scores`, `plain` (the scores without positions, None where they cannot be determined),
    `turned` (whether rotated queries were seen), `values`, `mixed` and `output_weight` hold what was seen, `live`
    the values as part of the graph. `stream` [1 position hidden], of several streams [1 position stream hidden],
    is what enters the layer; an update whose scores are of types `constant` is added without its gradient.
    `joined` is the sum that the update is part of, `last` the last later sum of the stream's size, which has the
    feed-forward block's in it: parts of the graph. Raises `ModelError` when the stream is not one prompt's.
    """

    def __init__(self, stream: Tensor, constant: tuple[type, ...] = ()):
        if stream.dim() not in (3, 4) or stream.shape[0] != 1:
            got = f"a stream of shape {list(stream.shape)}"
            raise wrong("model", "one prompt at a time", got=got, kind=ModelError)
        self.stream = stream
        self.update: Tensor | None = None
        self.joined: Tensor | None = None
        self.last: Tensor | None = None
        self.scores: Scores | None = None
        self.plain: Factored | None = None
        self.turned = False
        self.values: Tensor | None = None
        self.live: Tensor | None = None
        self.mixed: Tensor | None = None
        self.output_weight: Tensor | None = None
        self._tokens, self._constant = stream.shape[1], constant

    @property
    def done(self) -> bool:
        return self.update is not None

    def run(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Run one operation as the model asked, noting what it means for attention."""
        name = getattr(func, "__name__", "")
        if self.done:
            result = func(*args, **kwargs)
            if name in _ADDITIONS and result.numel() == self.stream.numel():
                self.last = result
            return result
        operands = [item for item in flat([*args, *kwargs.values()]) if isinstance(item, Tensor)]
        marks = [mark_of(operand) for operand in operands]
        if name in _ADDITIONS and self._is_update(operands, marks):
            update = self.update = operands[0] if isinstance(marks[0], (Mixed, Derived)) else operands[1]
            if isinstance(self.scores, self._constant):
                args = tuple(item.detach() if item is update else item for item in args)
            self.joined = func(*args, **kwargs)
            return self.joined
        twin = None
        if any(isinstance(mark, Twin) for mark in marks) and self.scores is None:
            # before the operation itself, which may be in place
            twin = twin_arguments(name, args, kwargs)
        result = func(*args, **kwargs)
        if func is _SDPA and self.scores is None:
            self._fused(result, *args, **kwargs)
        elif func in _SOFTMAX and self.scores is None and self._is_attention(operands[0]):
            self._softmax(operands[0], result)
        elif name in _PRODUCTS and len(operands) == 2 and self._product(result, *operands):
            pass
        elif name == "baddbmm":
            if self._product(result, *operands[1:3]) and isinstance(mark_of(result), Product):
                set_mark(result, replace(mark_of(result), scale=float(kwargs.get("alpha", 1))))
        elif name in ("linear", "addmm") and any(isinstance(mark, Mixed) for mark in marks):
            self._output(name, operands)
            mark_all(result, Derived())
        elif twin is not None:
            with torch.no_grad():
                mark_twins(result, func(*twin[0], **twin[1]))
                if name == "__setitem__":
                    set_mark(args[0], Twin(twin[0][0]))
        else:
            self._hand_on(name, args, operands, marks, result)
        if twin is not None and in_place(name):
            mark_base(operands[0])
        return result

    def _is_update(self, operands: list[Tensor], marks: list) -> bool:
        """Whether exactly one of two tensors of the stream's shape comes from attention.

        A bias spread over all positions (its stride there is 0) is no stream: with it, attention is not complete.
        """
        return (
            len(operands) == 2
            and sum(isinstance(mark, (Mixed, Derived)) for mark in marks) == 1
            and operands[0].shape == operands[1].shape == self.stream.shape
            and all(operand.stride(1) for operand in operands)
        )

    def _is_attention(self, given: Tensor) -> bool:
        right = given.dim() == 4 and given.shape[-2] == self._tokens <= given.shape[-1]
        return right or (given.dim() >= 3 and isinstance(mark_of(given), Product))

    def _softmax(self, given: Tensor, result: Tensor) -> None:
        """Eager attention: the softmax sees all logits of the layer, with a sink next to them or without."""
        tokens, product = self._tokens, mark_of(given)
        if isinstance(product, Product) and product.before is not None:
            given = product.before
        logits, attention = (heads_of(one)[..., :tokens] for one in (given, result))
        if self.stream.dtype == torch.float16 != logits.dtype:
            # masked in half precision, then upcast: the mask's lowest number is no longer the lowest there is
            unseen = logits <= torch.finfo(torch.float16).min / 2
            logits = logits.masked_fill(unseen, torch.finfo(logits.dtype).min)
        self.scores = Given(logits, attention)
        if isinstance(product, Product) and product.scale is not None:
            query, channels = product.query.flatten(0, -3), product.query.shape[-1]
            self.turned = product.turned
            self.plain = Factored(
                query=query.expand(logits.shape[0], tokens, channels),
                key=product.key.flatten(0, -3),
                scale=product.scale,
                cap=product.cap,
                mask=logits,
                only_hides=True,
            )
        set_mark(result, Weights())

    def _fused(
        self, result, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **_
    ):
        """Attention in one call: all its factors are arguments."""
        if query.shape[-2] != self._tokens:
            return
        self.turned = isinstance(mark_of(query), Twin) or isinstance(mark_of(key), Twin)
        mask = None if attn_mask is None else heads_of(attn_mask)
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        self.scores = Factored(heads_of(query), heads_of(key), scale, mask, causal=bool(is_causal))
        query, key = heads_of(plain(query)), heads_of(plain(key))
        self.plain = replace(self.scores, query=query, key=key, only_hides=True)
        self._mix(result, value)

    def _product(self, result: Tensor, one: Tensor, other: Tensor) -> bool:
        """Note a matrix product if it is queries with keys, attention with values, or the output projection."""
        mark = mark_of(one)
        if isinstance(mark, Weights):
            self._mix(result, other)
            return True
        if isinstance(mark, Mixed) and other.dim() == 2:
            self._output("matmul", [one, other])
            set_mark(result, Derived())
            return True
        square = result.dim() in (3, 4) and result.shape[-2:] == (self._tokens, self._tokens)
        if self.scores is None and square and one.dim() >= 3 and other.dim() >= 3:
            turned = isinstance(mark, Twin) or isinstance(mark_of(other), Twin)
            key = plain(other).transpose(-1, -2)
            set_mark(result, Product(plain(one), key, turned=turned))
            return True
        return False

    def _mix(self, result: Tensor, values: Tensor) -> None:
        if (entries := values.shape[-2]) != self._tokens:
            what = f"a value for each of {self._tokens} tokens"
            raise wrong("model", what, got=f"{entries} entries", kind=ModelError)
        heads, self.live = result.shape[-3], values
        values = heads_of(values)
        self.values = values.repeat_interleave(heads // values.shape[0], dim=0)
        self.mixed = heads_of(result).transpose(0, 1).flatten(1)
        set_mark(result, Mixed())

    def _output(self, name: str, operands: list[Tensor]) -> None:
        """Note W_O [hidden, head · channel]: the first projection of attention · values that nothing changed."""
        if self.output_weight is not None or self.mixed is None:
            return
        given, weight = operands[1:3] if name == "addmm" else operands[:2]
        weight = weight.detach() if name == "linear" else weight.detach().transpose(0, 1)
        if weight.shape[1] == self.mixed.shape[1]:
            self.mixed, self.output_weight = given.detach().reshape(self.mixed.shape), weight

    def _hand_on(self, name: str, args: tuple, operands: list[Tensor], marks: list, result: Any) -> None:
        found = [mark for mark in marks if mark is not None and not isinstance(mark, Twin)]
        if not found:
            return
        mark = found[0]
        if isinstance(mark, Product):
            mark_all(result, scored(mark, name, args, operands[marks.index(mark)]))
        elif name in _MOVES:
            mark_all(result, mark)
        elif not isinstance(mark, Weights):
            mark_all(result, Derived())


def stream_of(positional: Sequence[Any], named: Mapping[str, Any]) -> Tensor:
    """The stream among the arguments of a decoder layer."""
    return positional[0] if positional else named["hidden_states"]
