"""Marks on tensors: what an operation's operands say about where attention stands.

A mark is an attribute of the tensor object, so that it lives no longer than the tensor and costs no memory of
its own. A tensor has one mark at most. How marks pass from operands to results is `tracer.py`'s affair; here
is what they say, and how scores keep count of scale and cap.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from posbias.measurement.capture.scores import single

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
    before a sink was put beside them.
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
        number = _number(others[0]) if others else None
        if number is None or product.scale is None:
            return replace(product, scale=None)
        factor = number if name in _MULTIPLICATIONS else 1 / number
        cap = None if product.cap is None else product.cap * factor
        return replace(product, scale=product.scale * factor, cap=cap)
    if name in ("tanh", "tanh_"):
        return replace(product, cap=1.0)
    if name == "cat":
        return replace(product, before=scores.detach())
    return product


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None


def twin_arguments(name: str, args: tuple, kwargs: dict) -> tuple[list, dict]:
    """The arguments with every rotated tensor replaced by its twin; what is written into is never the model's."""
    given = [_swapped(item) for item in args]
    if in_place(name) and isinstance(args[0], Tensor) and not isinstance(mark_of(args[0]), Twin):
        given[0] = args[0].detach().clone()
    return given, {key: _swapped(item) for key, item in kwargs.items()}


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


def _swapped(item: Any) -> Any:
    if isinstance(item, (list, tuple)) and any(isinstance(inner, Tensor) for inner in item):
        return type(item)([_swapped(inner) for inner in item])
    return plain(item) if isinstance(item, Tensor) else item


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


def holds_tensors(result: Any) -> bool:
    """Return whether a result is a tensor or has one in it."""
    return any(isinstance(item, Tensor) for item in flat([result]))


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
    if mark is None:
        if hasattr(tensor, _MARK):
            delattr(tensor, _MARK)
    else:
        setattr(tensor, _MARK, mark)


def unrotated(sin_or_cos: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the pair with √(cos² + sin²) for the cosine and 0 for the sine, in the order given.

    The sine is the one that is zero at the first position.
    """
    one, other = (single(item.detach()) for item in sin_or_cos)
    length, nothing = torch.hypot(one, other).to(sin_or_cos[0].dtype), torch.zeros_like(sin_or_cos[0])
    if bool((other[..., 0, :] == 0).all()):
        return length, nothing
    return nothing, length
