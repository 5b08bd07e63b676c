"""The library's tests: every array signature is checked against its shape."""

from setting import logging_as_found, pytest_collection_modifyitems  # noqa: F401
from shapes import check_shapes

# every array signature is checked against its shape; compiled code (sweep) and values (pydantic's) are left out
_CHECKED = [
    "posbias.profiles.profile",
    "posbias.profiles.summary",
    "posbias.profiles.curves",
    "posbias.profiles.estimate",
    "posbias.comparison.scores",
    "posbias.theory.rollout.kernel",
    "posbias.theory.rollout.dispatch",
    *(
        f"posbias.measurement.{name}"
        for name in (
            "capture.forward",
            "capture.scores",
            "quantities.attention",
            "quantities.mixing",
            "quantities.influence",
            "prompt_meter",
        )
    ),
    *(f"posbias.training.{name}" for name in ("task", "network", "attention")),
    *(f"posbias.simulation.{name}" for name in ("tally", "gram")),
    "posbias.measurement.selfchecks",
    "posbias.measurement.result",
]
check_shapes(_CHECKED)
