"""Array signatures of our modules are checked while tests run: each shape that is written, and nothing else.

jaxtyping's own import hook wraps every function of a module, whether it names an array or not, and a nested one
anew each time it is defined: a quarter of each training and each measurement went there. Here functions within
functions and compiled ones are left alone.
"""

import ast
import sys
from collections.abc import Collection
from importlib.machinery import PathFinder, SourceFileLoader
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, jaxtyped

_DECORATOR = "__import__('shapes').checked"
_CHECK = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""An integer may stand for a float, as type checkers have it."""


def check_shapes(modules: Collection[str]) -> None:
    """Whichever of `modules` is imported from now on, or lies in one, has its array signatures checked."""
    sys.meta_path.insert(0, _Finder(modules))  # type: ignore[arg-type]


def checked(made: Any) -> Any:
    """`made`, a function or a class, with the arrays of its signature checked, if it names any."""
    called = made.__init__ if isinstance(made, type) else made
    hints = getattr(called, "__annotations__", {})
    arrays = {name: hint for name, hint in hints.items() if _names_an_array(hint)}
    if not arrays:
        return made
    if isinstance(made, type):
        return jaxtyped(made, typechecker=_CHECK)
    made.__annotations__ = arrays
    wrapped = jaxtyped(made, typechecker=_CHECK)
    made.__annotations__ = wrapped.__annotations__ = hints
    return wrapped


def _names_an_array(hint: Any) -> bool:
    """Whether an annotation is or holds one of jaxtyping's arrays; of one in quotes, whether it says so."""
    if isinstance(hint, list):
        return any(map(_names_an_array, hint))
    if isinstance(hint, str):
        return "[np.ndarray, " in hint or "[Tensor, " in hint
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(map(_names_an_array, get_args(hint)))


class _Finder:
    def __init__(self, modules: Collection[str]):
        self._modules = modules

    def find_spec(self, name, path=None, target=None):
        if not any(name == module or name.startswith(f"{module}.") for module in self._modules):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname):
        """From the source: what lies in the cache checks nothing."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def source_to_code(self, data, path, *, _optimize=-1):
        tree = _Decorated().visit(ast.parse(data, path))
        return super().source_to_code(ast.fix_missing_locations(tree), path)


class _Decorated(ast.NodeTransformer):
    """Functions are checked before any other decorator sees them, classes after all of theirs."""

    def visit_FunctionDef(self, node):
        if any(ast.unparse(decorator).startswith("compiled(") for decorator in node.decorator_list):
            return node
        node.decorator_list.append(self._decorator(node))
        return node

    def visit_ClassDef(self, node):
        node.decorator_list.insert(0, self._decorator(node))
        return self.generic_visit(node)

    def _decorator(self, node):
        return ast.copy_location(ast.parse(_DECORATOR, mode="eval").body, node)
