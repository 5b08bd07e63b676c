"""Arguments held against the types that a signature names, before a public function does anything.

    @typed
    def influence(architecture: Architecture, tokens: int, query: int = -1): ...

    influence(None, 8)      # InvalidValueError: architecture: None given, an Architecture needed

What a value may be beyond its type (at least 1, a position) is the function's own to ask, with
`posbias.arguments`. A name in quotes stands for a class that is not loaded here, and is told by its name.
Annotations that say no more than `Any` are not asked about. What asks loads neither NumPy nor jaxtyping: arrays
and their shapes come from those who did.
"""

import functools
import inspect
import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from posbias.arguments import LIMIT, is_integer, is_number, shortened
from posbias.errors import InvalidValueError

LONGEST_PATH = 4096
"""Characters of a path; no system takes more."""
C = TypeVar("C", bound=Callable[..., Any])


def typed(call: C) -> C:
    """`call`, which raises `InvalidValueError` for an argument of another type than its signature names.

    Of a class it is the constructor that does.
    """
    if isinstance(call, type):
        call.__init__ = typed(call.__init__)  # type: ignore[misc]
        return cast(C, call)
    parameters = inspect.signature(call).parameters
    hints = {name: one.annotation for name, one in parameters.items() if one.annotation is not one.empty}
    open_ended = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    hints = {name: hint for name, hint in hints.items() if parameters[name].kind not in open_ended}
    paths = {name for name, hint in hints.items() if "Path" in str(hint)}
    in_order = tuple(parameters)
    defaults = {name: parameters[name].default for name in hints}

    @functools.wraps(call)
    def asked(*args: Any, **kwargs: Any) -> Any:
        for name, given in (*zip(in_order, args, strict=False), *kwargs.items()):
            hint = hints.get(name, Any)
            of_class = type(given) is hint and (hint is not int or -LIMIT <= given < LIMIT)
            if of_class or hint is Any or given is defaults[name]:
                continue
            if not fits(given, hint):
                too_large = (
                    isinstance(given, Integral) and not isinstance(given, bool) and not is_integer(given)
                )
                size = " below 2**63" if too_large else ""
                own = (
                    "; its profile() is one"
                    if hasattr(type(given), "profile") and "Profile" in str(hint)
                    else ""
                )
                raise InvalidValueError(f"{name}: {shortened(given)} given, {words(hint)}{size} needed{own}")
            if name in paths and isinstance(given, str) and not 0 < len(given.strip("\0")) <= LONGEST_PATH:
                raise InvalidValueError(f"{name}: {shortened(given)} given, a path needed")
        return call(*args, **kwargs)

    return cast(C, asked)


def fits(given: Any, hint: Any) -> bool:
    """Whether a value is of the type that an annotation names."""
    if isinstance(hint, str):
        return any(_named(given, word) for word in hint.split(" | "))
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        own = _methods(hint)
        return fits(given, inner[0]) or (
            bool(own) and all(callable(getattr(given, one, None)) for one in own)
        )
    if origin in (Union, types.UnionType):
        return any(fits(given, one) for one in inner)
    if origin is Literal:
        return isinstance(given, str | int) and given in inner
    if hasattr(hint, "dim_str"):
        return _is_array(given, hint)
    if origin is not None:
        return _holds(given, origin, inner)
    return hint is Any or not isinstance(hint, type) or _is_one(given, hint)


def words(hint: Any) -> str:
    """An annotation in words, for what an error says is needed."""
    if isinstance(hint, str):
        return " or ".join(_one(word.rpartition(".")[2].partition("[")[0]) for word in hint.split(" | "))
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        members = get_args(inner[0])
        if not _methods(hint):
            return words(inner[0])
        parts = members[0].__module__.split(".")[:-3:-1]
        kind = next((part for part in parts if part.endswith("s")), parts[0]).removesuffix("s")
        return f"{_one(kind)} ({', '.join(one.__name__ for one in members)})"
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(words(one) for one in inner))
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if hasattr(hint, "dim_str"):
        axes = " × ".join(str(hint.dim_str).split())
        return f"an array of {_KINDS[_kinds(hint)]} [{axes}]"
    if origin is not None and issubclass(origin, Mapping):
        return "a mapping"
    if origin is not None and issubclass(origin, Collection | Iterable):
        return f"a list ({words(inner[0])} each)"
    if hint in _WORDS:
        return _WORDS[hint]
    return "a function" if origin is not None or hint is Callable else _one(hint.__name__)


_WORDS: dict[Any, str] = {
    types.NoneType: "None", int: "an integer", float: "a number", bool: "True or False", str: "a text",
    os.PathLike: "a path",
}  # fmt: skip

_MADE_BY = {
    "Architecture": "posbias.preset",
    "Profile": "posbias.Profile.from_weights",
    "Dataset": "posbias.load_measurement",
    "RetrievalJob": "posbias.retrieval.job.retrieval_job",
}
"""What makes one of a class from a name, numbers or a file, which people give instead."""


def _methods(hint: Any) -> tuple[str, ...]:
    """The methods that make a class of a user's own a member of a union (`posbias.spec.Open`); none if closed."""
    return next((one.methods for one in getattr(hint, "__metadata__", ()) if hasattr(one, "methods")), ())


def _one(name: str) -> str:
    if name == "None":
        return name
    made = f" ({_MADE_BY[name]} makes one)" if name in _MADE_BY else ""
    return f"a path ({name})" if name == "Path" else f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}{made}"


def _is_one(given: Any, cls: type) -> bool:
    if cls is bool:
        return isinstance(given, bool) or (_kind(given) == "b" and given.ndim == 0)
    if cls is int:
        return is_integer(given)
    if cls is float:
        return is_number(given)
    if getattr(cls, "_is_protocol", False):
        parts = {name for name in (*vars(cls), *cls.__annotations__) if not name.startswith("_")}
        return not isinstance(given, type) and all(hasattr(given, name) for name in parts)
    return isinstance(given, cls)


def _holds(given: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """Whether a value is a collection of what an annotation with brackets names."""
    if origin is Callable:
        return callable(given)
    if not isinstance(origin, type):
        return True
    if issubclass(origin, Mapping):
        return isinstance(given, Mapping) and (
            not inner or all(fits(key, inner[0]) and fits(one, inner[1]) for key, one in given.items())
        )
    if issubclass(origin, tuple | Sequence):
        if issubclass(origin, tuple) and inner[1:] and inner[-1] is not ...:
            listed = isinstance(given, tuple | list) and len(given) == len(inner)
            return listed and all(map(fits, given, inner))
        if kind := _kind(given):
            # numbers of one array are all of a type
            return (
                given.ndim > 0
                and kind != "U"
                and all(fits(one, inner[0]) for one in (given if kind == "O" else given[:1]))
            )
        listed = isinstance(given, Sequence) and not isinstance(given, str | bytes)
        return listed and all(fits(one, inner[0]) for one in given)
    return isinstance(given, origin)


_KINDS = {"b": "truths", "iu": "integers", "fiu": "numbers"}


def _kinds(hint: Any) -> str:
    """What NumPy calls the kinds of numbers that an annotated array may have."""
    named = hint.dtypes if isinstance(hint.dtypes, Collection) else ()
    return "b" if "bool" in named else "iu" if named and "float64" not in named else "fiu"


def _kind(given: Any) -> str | None:
    """What NumPy calls the kind of an array's or a number's type; None for anything that is not NumPy's."""
    return getattr(getattr(given, "dtype", None), "kind", None)


def _is_array(given: Any, hint: Any) -> bool:
    """Whether a value is or makes an array of numbers (of truths, where those are meant) with so many axes."""
    import numpy as np

    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        return False
    if array.dtype.kind not in _kinds(hint):
        return False
    if hint.index_variadic is not None:
        return array.ndim >= len(hint.dims) - 1
    return array.ndim == len(hint.dims)


def _named(given: Any, word: str) -> bool:
    """Whether a value's class, or one it is built on, has the name; anything where the name has brackets."""
    if word == "None":
        return given is None
    name = word.rpartition(".")[2]
    return (
        "[" in word or name in ("Any", "object") or any(one.__name__ == name for one in type(given).__mro__)
    )
