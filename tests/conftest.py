"""Shared test setting: shapes are checked, examples are the same on every run, no hub is asked."""

import os
import signal

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# a shell that starts the tests in the background has SIGINT ignored, and so would every process started here
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

settings.register_profile(
    "posbias", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("posbias")

# every array signature is checked against its shape; compiled code (scan) and values (pydantic's) are left out
_CHECKED = [
    "posbias.profile",
    "posbias.estimate",
    "posbias.comparison",
    "posbias.theory.kernel",
    "posbias.theory.rollout",
    "posbias.theory.residual",
    *(
        f"posbias.measure.{name}"
        for name in ("capture", "scores", "content", "mixing", "kernels", "influence", "prompt")
    ),
    *(f"posbias.train.{name}" for name in ("task", "feed", "network", "attention")),
    *(f"posbias.simulate.{name}" for name in ("tally", "gram")),
    *(f"posbias.papers.herasimchyk2026.{name}" for name in ("levels", "agreement", "homogeneity")),
    "posbias.measure.proof",
    "posbias.measure.result",
]
install_import_hook(_CHECKED, "beartype.beartype")
