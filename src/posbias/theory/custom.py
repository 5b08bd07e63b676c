"""What users bring to masks and encodings: an array, a function of positions, or the name of one in a file.

A name is "module:name". Its module is imported from the folder one works in, or from Python's path, when its
values are first needed: reading a file that holds it runs nothing. Saved, it carries sixteen digits of the
module's source ("mymodule:mymask#5d41402abc4b2a76"), so that what was computed with one version is not taken for
another's. A function without a name (a lambda, one of `__main__` or inside another) works and is not saved.
"""

import hashlib
import importlib
import re
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Shaped
from pydantic import PlainSerializer, PlainValidator

from posbias.core.errors import InvalidValueError, nearest, shortened, wrong

_NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)(?:#([0-9a-f]{16}))?")
KINDS = {"b": "booleans", "iuf": "numbers"}
"""Kinds of NumPy's types → what they are called."""


class Custom:
    """An array, a function, or the name of either, of values of one of `KINDS`.

    Arrays are equal by their values, named functions by name and source, others only to themselves.
    """

    def __init__(self, name: str, content: Any, kind: str):
        self.name, self.kind = name, kind
        self._content = content

    @cached_property
    def content(self) -> Any:
        """The array or function; imported if it is not here yet. Raises `InvalidValueError` if it cannot be."""
        return _array(_imported(self.name), self.kind) if self._content is None else self._content

    @cached_property
    def spelling(self) -> Any:
        """As a file holds it: lists (−∞ as null), or the name with its digits. Raises `InvalidValueError`."""
        if self.name:
            return self.name if "#" in self.name else f"{self.name}#{_digits(self.name)}"
        if callable(self._content):
            raise InvalidValueError(
                "a function without a name (a lambda, or one that is not at the top of a module) cannot be saved, "
                "nor sent to workers; put it into a module of your own"
            )
        values: np.ndarray = self._content.astype(object)
        if self.kind != "b":
            values[np.isneginf(self._content)] = None
        return values.tolist()

    def at(self, what: str, *positions: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
        """The values at these positions: of a function as it gives them, of an array [*head, *positions].

        Raises `InvalidValueError`, naming `what`, for values of another kind and positions beyond the array.
        """
        if not callable(self.content):
            size, needed = self.content.shape[-1], max(int(each.max(initial=-1)) + 1 for each in positions)
            if needed > size:
                raise wrong(what, f"at least {needed} tokens for this text", size)
            return self.content[(..., *positions)]
        try:
            values = np.asarray(self.content(*positions))
        except Exception as error:
            message = " ".join(str(error).split())
            if "truth value of an array" in message:
                message += " It is called with whole arrays: np.where for if, & for and are needed"
            raise InvalidValueError(f"{what}: {self!r} raised {type(error).__name__}: {message}") from error
        if values.dtype.kind not in self.kind:
            raise wrong(what, KINDS[self.kind], got=str(values.dtype))
        return values

    def over(
        self, what: str, query: Shaped[np.ndarray, "query"], key: Shaped[np.ndarray, "key"]
    ) -> Shaped[np.ndarray, "*head query key"]:
        """The values at all pairs of positions, of numbers by head where they differ.

        Raises `InvalidValueError` as `at`, and for another shape.
        """
        values, shape = self.at(what, query[:, None], key[None, :]), (len(query), len(key))
        if values.shape == shape:
            return values
        by_head = self.kind != "b" and values.ndim > len(shape)
        try:
            return np.broadcast_to(values, (*values.shape[:1], *shape) if by_head else shape)
        except ValueError:
            wanted = f"{KINDS[self.kind]} of shape {shape}{', or so per head' * (self.kind != 'b')}"
            raise wrong(what, wanted, got=f"{values.shape}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        if self.name or callable(self._content):
            return self.name or repr(self._content)
        return f"<{' × '.join(map(str, self._content.shape))} {KINDS[self.kind]}>"

    @cached_property
    def _key(self) -> Any:
        if self.name:
            # a module that is not here yet is known by its name
            return self.spelling if _source(self.name) else self.name
        if callable(self._content):
            return id(self._content)
        return self._content.shape, hashlib.sha256(self._content.tobytes()).digest()


def _custom(kind: str, arrays: bool) -> Callable[[Any], Custom]:
    def read(given: Any) -> Custom:
        if isinstance(given, Custom):
            return given
        if isinstance(given, str):
            if not _NAME.fullmatch(given):
                raise InvalidValueError(f"expected mymodule:myname, got {shortened(given)}")
            return Custom(given, None, kind)
        if callable(given):
            return Custom(_name_of(given), given, kind)
        if not arrays:
            raise InvalidValueError(f"expected a function or mymodule:myname, got a {type(given).__name__}")
        return Custom("", _array(given, kind), kind)

    return read


_SAVED = PlainSerializer(lambda one: one.spelling)
Booleans = Annotated[Any, PlainValidator(_custom("b", True)), _SAVED]
"""Booleans [query, key]: an array, a function of both, or the name of one."""
Biases = Annotated[Any, PlainValidator(_custom("iuf", True)), _SAVED]
"""Numbers or −∞ [query, key] or [head, query, key]: an array, a function of query and key, or the name of one."""
OfDistance = Annotated[Any, PlainValidator(_custom("iuf", False)), _SAVED]
"""A function of distance, or its name."""


def code_of(part: Any) -> list[str]:
    """The names of code, "module:name", that a mask or an encoding holds."""
    return [field.name for field in vars(part).values() if isinstance(field, Custom) and field.name]


def _array(given: Any, kind: str) -> Any:
    """A function as it is; anything else as a read-only square array of this kind."""
    if callable(given):
        return given
    axes = "[query, key]" if kind == "b" else "[query, key] or [head, query, key]"
    try:
        values = np.array(given)
    except ValueError:
        raise InvalidValueError(f"expected {KINDS[kind]} {axes}, got rows of different lengths") from None
    if values.dtype == object and kind != "b":
        values[values == None] = -np.inf  # noqa: E711
        values = np.array(values.tolist())
    square = values.ndim >= 2 and values.shape[-1] == values.shape[-2] > 0
    if values.dtype.kind not in kind or not square or values.ndim > (2 if kind == "b" else 3):
        wanted = f"{KINDS[kind]} {axes}, as many queries as keys"
        raise InvalidValueError(f"expected {wanted}, got {values.dtype} of shape {values.shape}")
    if kind != "b":
        values = values.astype(np.float64)
        if np.isnan(values).any() or np.isposinf(values).any():
            raise InvalidValueError("expected finite numbers or −∞, got NaN or +∞")
    values.flags.writeable = False
    return values


def _name_of(function: Callable[..., Any]) -> str:
    """`module:name` of a function at the top of an importable module, else nothing."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    found = f"{module}:{name}"
    here = module != "__main__" and getattr(sys.modules.get(str(module)), name, None) is function
    return found if here and _NAME.fullmatch(found) and _source(found) else ""


def _source(name: str) -> Path | None:
    """The file of a name's module, found without running anything."""
    module = name.partition(":")[0]
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded:
        return Path(loaded)
    places = (Path(folder, *module.split(".")) for folder in (Path.cwd(), *sys.path))
    files = (file for place in places for file in (place.with_suffix(".py"), place / "__init__.py"))
    return next((file for file in files if file.is_file()), None)


def _digits(name: str) -> str:
    """Sixteen digits of the source of a name's module. Raises `InvalidValueError` if there is none."""
    source = _source(name)
    if source is None:
        raise InvalidValueError(f"{name}: no such module in {Path.cwd()} or on Python's path")
    return hashlib.sha256(source.read_bytes()).hexdigest()[:16]


def _imported(spelling: str) -> Any:
    """What a name stands for. Raises `InvalidValueError` if it is not there, or not as it was saved."""
    matched = _NAME.fullmatch(spelling)
    assert matched is not None
    module, name, digits = matched.groups()
    now = _digits(spelling)
    if digits and digits != now:
        raise InvalidValueError(f"{spelling}: {module} has changed since this was saved (#{now} now)")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        loaded = importlib.import_module(module)
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InvalidValueError(f"{spelling}: cannot be imported: {said}") from None
    finally:
        sys.path.remove(folder)
    if not hasattr(loaded, name):
        raise InvalidValueError(f"{spelling}: {module} has no {name!r}{nearest(name, vars(loaded))}")
    return getattr(loaded, name)
