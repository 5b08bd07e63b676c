"""Names of 0.1 that have moved: they work until 0.3, with a `DeprecationWarning` that names the new place.

0.1 had packages where verbs are now: `posbias.measure` was a package, and is a function. Until 0.3 it is both: an
object that is called as the function, and whose attributes and submodules are those of the package's new place.
Without this module the verbs remain, as plain functions: the stub of `posbias` has them too.
"""

import functools
import importlib
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

from posbias.logs import heard_by

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

VERBS = {
    "posbias.measure": ("posbias.measurement", "measure"),
    "posbias.report": ("posbias.reports", "report"),
    "posbias.simulate": ("posbias.simulation", "simulate"),
    "posbias.train": ("posbias.training", "train"),
}
"""Packages that became verbs: the package's new place, and the name of the verb there."""

MODULES = {
    **{old: new for old, (new, _) in VERBS.items()},
    "posbias.cluster": "posbias.execution",
    "posbias.workers": "posbias.execution",
    "posbias.measure.behaviour": "posbias.retrieval.statistics",
    "posbias.measure.content": "posbias.measurement.quantities.content",
    "posbias.measure.corpora": "posbias.measurement.texts.corpora",
    "posbias.measure.families": "posbias.measurement.models.families",
    "posbias.measure.haystack": "posbias.retrieval.trials",
    "posbias.measure.influence": "posbias.measurement.quantities.influence",
    "posbias.measure.loading": "posbias.measurement.models.loading",
    "posbias.measure.monotonicity": "posbias.stochastic_order",
    "posbias.measure.questions": "posbias.retrieval.job",
    "posbias.measure.rollouts": "posbias.measurement.quantities.rollouts",
    "posbias.measure.similarity": "posbias.measurement.quantities.similarity",
    "posbias.measure.text": "posbias.measurement.texts.prompts",
    "posbias.measure.wordings": "posbias.retrieval.templates",
    "posbias.theory.blocks": "posbias.theory.rollout.blocks",
    "posbias.theory.convolution": "posbias.theory.rollout.convolution",
    "posbias.theory.critical": "posbias.theory.closed_forms.critical_distances",
    "posbias.theory.deviation": "posbias.theory.closed_forms.deviation",
    "posbias.theory.kernel": "posbias.theory.rollout.kernel",
    "posbias.theory.layernorm": "posbias.theory.closed_forms.layernorm",
    "posbias.theory.limits": "posbias.theory.closed_forms.collapse_bounds",
    "posbias.theory.order": "posbias.stochastic_order",
    "posbias.theory.published": "posbias.theory.rollout_files",
    "posbias.theory.quadrature": "posbias.theory.closed_forms.quadrature",
    "posbias.theory.recency": "posbias.theory.closed_forms.recency",
    "posbias.theory.residual": "posbias.theory.closed_forms.residual_bounds",
    "posbias.theory.positional": "posbias.theory.encodings",
    "posbias.theory.scan": "posbias.theory.rollout.sweep",
    "posbias.theory.streaming": "posbias.theory.rollout.stream",
    "posbias.theory.tiles": "posbias.theory.rollout.tiles",
    "posbias.theory.windows": "posbias.theory.rollout.windows",
    "posbias.train.checkpoints": "posbias.store.checkpoint",
    "posbias.train.spelling": "posbias.training.shorthand",
}
"""Modules by their old name. One that is not here lies under its parent's new place, by the same name."""


NAMES = {
    "posbias": {
        "AtInitialisation": "theory.mixing.PreNormInit",
        "Constant": "theory.mixing.ConstantMixing",
        "Decay": "theory.encodings.DecayBias",
    },
    "posbias.spec": {
        "read_mapping": "posbias.input_files.read_mapping",
        "read_text": "posbias.input_files.read_text",
    },
    "posbias.store": {
        "load_profile": "posbias.predictors.load_profile",
        "profile_as_dict": "posbias.predictors.profile_as_dict",
    },
    "posbias.papers.readings": {"Number": "posbias.estimate.Estimate"},
    "posbias.theory.mixing": {"AtInitialisation": "PreNormInit", "Constant": "ConstantMixing"},
    "posbias.theory.encodings": {"Decay": "DecayBias"},
    "posbias.papers.herasimchyk2026": {"Made": "Reproduction", "make": "reproduce"},
    "posbias.papers.kim2026": {
        "FIGURES": "STUDIES",
        "FULL": "models.FULL",
        "QUICK": "models.QUICK",
        "ALPHAS": "models.ALPHAS",
        "describe": "models.describe",
        "SURE": "closed_forms.SURE",
        "key_factor_ratios": "closed_forms.key_factor_ratios",
    },
    "posbias.papers.wu2025": {
        "FIGURES": "STUDIES",
        "GROUPS": "STUDIES",
        "Made": "Reproduction",
        "make": "reproduce",
    },
}
"""Names that moved out of a package or module: the old name, and the new one, below it or from `posbias.` on."""


def moved(package: str, name: str) -> Any:
    """What an old name of a package or module stands for, with a warning.

    Raises `AttributeError` for a name that is none.
    """
    place = NAMES[package].get(name)
    if place is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    place = place if place.startswith("posbias.") else f"{package}.{place}"
    module, _, attribute = place.rpartition(".")
    warnings.warn(
        f"{package}.{name} is now {place}; the old name works until posbias 0.3",
        DeprecationWarning,
        stacklevel=3,
    )
    return CALLS.get((package, name), lambda new: new)(getattr(importlib.import_module(module), attribute))


def _counting(progress: Callable[[int, int], None]) -> Callable[[Any], None]:
    """Events for a `progress` of 0.1, which hears (done, to do)."""
    return lambda event: progress(int(event.done), int(event.total or 0))


def _as_make(reproduce: Callable[..., Any]) -> Callable[..., Any]:
    """`make` of 0.1 by a paper's `reproduce`; `say` hears what is logged."""

    def make(what: Any, folder: Any, *, progress: Any = None, say: Any = None, **options: Any) -> Any:
        """As `reproduce`, with the callbacks of 0.1."""
        with heard_by(say):
            return reproduce(what, out=folder, on_event=progress and _counting(progress), **options)

    return make


def _as_make_of_wu(reproduce: Callable[..., Any]) -> Callable[..., Any]:
    """The same where 0.1 had `quick` beside `effort`."""

    def make(figures: Any, folder: Any, *, quick: bool = True, effort: Any = None, **options: Any) -> Any:
        """As `reproduce`, with the callbacks of 0.1."""
        package = importlib.import_module(reproduce.__module__)
        spent = effort or (package.QUICK if quick else package.FULL)
        return _as_make(reproduce)(figures, folder, effort=spent, **options)

    return make


def takes_old_callbacks(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: takes `progress` and `say` of 0.1, with a warning; `say` hears what is logged."""

    @functools.wraps(function)
    def with_old_callbacks(*arguments: Any, progress: Any = None, say: Any = None, **options: Any) -> R:
        # the first is never a callback: a model in memory can be called too
        if arguments[1:] and callable(arguments[-1]):
            arguments, say = arguments[:-1], arguments[-1]
        if progress is None and say is None:
            return function(*arguments, **options)
        warnings.warn(
            f"{function.__name__}: progress and say are now on_event and logging; they work until posbias 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        if progress is not None:
            options["on_event"] = _counting(progress)
        with heard_by(say):
            return function(*arguments, **options)

    return cast(Callable[P, R], with_old_callbacks)


CALLS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("posbias.papers.herasimchyk2026", "make"): _as_make,
    ("posbias.papers.wu2025", "make"): _as_make_of_wu,
    # captions were no figures
    ("posbias.papers.wu2025", "FIGURES"): lambda studies: {
        name: study for name, study in studies.items() if not study.parts
    },
    ("posbias.papers.wu2025", "GROUPS"): lambda studies: {
        name: tuple(part.name for part in study.parts) for name, study in studies.items() if study.parts
    },
}
"""How what moved and changed is made to be as it was, by package and old name."""


def or_moved(package: str, find: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """A module's `__getattr__`: what `find` finds, else what an old name stands for."""

    def find_or_moved(name: str) -> Any:
        return moved(package, name) if name in NAMES[package] or find is None else find(name)

    return find_or_moved


def renamed_fields(**renamed: str) -> Callable[[type[T]], type[T]]:
    """A decorator of a dataclass: old names of fields are read, and taken by its constructor, with a warning."""

    def tell(cls: type[T], old: str) -> str:
        warnings.warn(
            f"{cls.__name__}.{old} is now {cls.__name__}.{renamed[old]}; the old name works until posbias 0.3",
            DeprecationWarning,
            stacklevel=3,
        )
        return renamed[old]

    def with_old_names(cls: type[T]) -> type[T]:
        init = cls.__init__

        @functools.wraps(init)
        def __init__(self: T, *arguments: Any, **fields: Any) -> None:  # noqa: N807
            init(
                self,
                *arguments,
                **{tell(cls, name) if name in renamed else name: fields[name] for name in fields},
            )

        cls.__init__ = __init__
        for old in renamed:
            setattr(cls, old, property(lambda self, old=old: getattr(self, tell(cls, old))))
        return cls

    return with_old_names


def install(package: dict[str, Any]) -> None:
    """Make the old modules importable, and put the verbs into `package`, the namespace of `posbias`."""
    for old in VERBS:
        sys.modules[old] = package[old.partition(".")[2]] = _Verb(old)
    sys.meta_path.append(_Finder())


def new_place(old: str) -> str | None:
    """Where the module of an old name lies now; None for a name that is none of them."""
    if old in MODULES:
        return MODULES[old]
    parent, _, name = old.rpartition(".")
    place = new_place(parent) if parent else None
    return None if place is None else f"{place}.{name}"


class _Moved(ModuleType):
    """A module under its old name: what is asked of it comes from its new place, with a warning."""

    def __init__(self, old: str):
        super().__init__(old)
        self.__path__ = []
        self.__spec__ = ModuleSpec(old, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        place = new_place(self.__name__)
        attribute = getattr(importlib.import_module(str(place)), name)
        warnings.warn(
            f"{self.__name__}.{name} is now {place}.{name}; the old name works until posbias 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        return attribute

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


class _Verb(_Moved):
    @property
    def __wrapped__(self) -> Any:
        place, verb = VERBS[self.__name__]
        return getattr(importlib.import_module(place), verb)

    @property
    def __doc__(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.__wrapped__.__doc__

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.__wrapped__(*arguments, **options)


class _Finder:
    """Finds submodules of old packages, for `import`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        from importlib.util import find_spec

        place = new_place(name)
        return None if place is None or find_spec(place) is None else ModuleSpec(name, self, is_package=True)  # pyright: ignore[reportArgumentType]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Moved(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""
