"""Following one layer's attention through the operations it is made of.

Each tensor of interest carries a mark, and every operation hands marks on. A rotated tensor carries its
`Twin`: what it would be had the rotation turned by no angle. Where queries meet keys the result carries the
`Product`: the two factors and, after each scalar operation on the way to the softmax, the scale and soft cap
so far. What leaves the softmax is `Weights`, its product with the values `Mixed` for as long as it is merely
moved about, and anything computed from that is `Derived`, until it is added to the stream: that operand is
the layer's update. Nothing here knows a family by name, and nothing the model computes is touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from posbias.core.errors import ModelError
from posbias.measurement.capture.scores import Factored, Given, Scores
from posbias.measurement.capture.tags import (
    Derived,
    Mixed,
    Product,
    Twin,
    Weights,
    flat,
    heads_of,
    holds_tensors,
    in_place,
    mark_all,
    mark_base,
    mark_of,
    mark_twins,
    plain,
    scored,
    set_mark,
    twin_arguments,
)

_SDPA = functional.scaled_dot_product_attention
_SOFTMAX = {functional.softmax, torch.softmax, Tensor.softmax}
_ADDITIONS = {"add", "__add__", "__radd__", "__iadd__", "add_"}
_PRODUCTS = {"matmul", "__matmul__", "bmm"}
_MOVES = {
    *("transpose", "permute", "reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze", "swapaxes"),
    *("contiguous", "clone", "to", "type", "type_as", "float", "dropout", "__getitem__", "__get__", "expand"),
}


class Watch:
    """Watches the operations of one layer until its attention update is added to the stream.

    Afterwards `update`, `scores`, `plain` (the scores without positions, None where they cannot be told),
    `turned` (whether rotated queries were seen), `values`, `mixed` and `output_weight` hold what was seen, `live`
    the values as part of the graph. `stream` [1 position hidden] is what enters the layer. Raises `ModelError`
    when it is not one prompt's.
    """

    def __init__(self, stream: Tensor):
        if stream.dim() != 3 or stream.shape[0] != 1:
            raise ModelError(
                f"model: a stream of shape {list(stream.shape)} given, one prompt at a time needed"
            )
        self.stream = stream
        self.update: Tensor | None = None
        self.scores: Scores | None = None
        self.plain: Factored | None = None
        self.turned = False
        self.values: Tensor | None = None
        self.live: Tensor | None = None
        self.mixed: Tensor | None = None
        self.output_weight: Tensor | None = None
        self._tokens = stream.shape[-2]

    @property
    def done(self) -> bool:
        return self.update is not None

    def run(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Run one operation as the model asked, noting what it means for attention."""
        name = getattr(func, "__name__", "")
        operands = [item for item in flat([*args, *kwargs.values()]) if isinstance(item, Tensor)]
        marks = [mark_of(operand) for operand in operands]
        if name in _ADDITIONS and self._is_update(operands, marks):
            self.update = operands[0] if isinstance(marks[0], (Mixed, Derived)) else operands[1]
            return func(*args, **kwargs)
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
            if self._product(result, *_batches(args, kwargs)) and isinstance(mark_of(result), Product):
                set_mark(result, replace(mark_of(result), scale=float(kwargs.get("alpha", 1))))
        elif name in ("linear", "addmm") and any(isinstance(mark, Mixed) for mark in marks):
            self._output(name, operands)
            mark_all(result, Derived())
        elif twin is not None and holds_tensors(result):
            with torch.no_grad():
                mark_twins(result, func(*twin[0], **twin[1]))
        elif twin is not None and name == "__setitem__":
            with torch.no_grad():
                func(*twin[0], **twin[1])
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
        """Eager attention: the softmax sees all logits of the layer, with a sink beside them or without."""
        tokens, product = self._tokens, mark_of(given)
        logits = given.detach().flatten(0, -3)
        attention = result.detach().flatten(0, -3)
        if isinstance(product, Product) and product.before is not None:
            logits = product.before.flatten(0, -3)
        logits, attention = logits[..., :tokens], attention[..., :tokens]
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
        mask = None if attn_mask is None else attn_mask.detach().flatten(0, -3)
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        self.scores = Factored(heads_of(query), heads_of(key), scale, mask, causal=bool(is_causal))
        self.plain = replace(
            self.scores, query=heads_of(plain(query)), key=heads_of(plain(key)), only_hides=True
        )
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
        if not found or not holds_tensors(result):
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


def _batches(args: tuple, kwargs: dict) -> tuple[Tensor, Tensor]:
    """The two factors of a baddbmm, however they were passed."""
    one = kwargs["batch1"] if "batch1" in kwargs else args[1]
    return one, kwargs["batch2"] if "batch2" in kwargs else args[2]
