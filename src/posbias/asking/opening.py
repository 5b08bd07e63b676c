"""Models that are opened to be asked, by name, folder or in memory; whoever is asked otherwise stays who it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from posbias.core.machine import leaving_a_core, torch_threads


def is_model(who: Any) -> bool:
    """Whether it is a model to be opened: nobody who is asked, and no function but a model in memory."""
    asked = hasattr(who, "score") or hasattr(who, "write")
    return not asked and (hasattr(who, "parameters") or not callable(who))


@contextmanager
def opened(who: Any, threads: int | None = None, **how: Any) -> Iterator[Any]:
    """Whoever is asked; a model is opened in the block, `how` as of `posbias.measurement.models.loading.ready`."""
    if not is_model(who):
        yield who
        return
    from posbias.asking.local import LocalModel
    from posbias.measurement.models.loading import ready

    with ready(who, **how) as loaded, torch_threads(leaving_a_core() if threads is None else threads):
        yield LocalModel(loaded)
