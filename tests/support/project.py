"""Where the project lies, and the rollout files of the residual-aware paper where a checkout is next to it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROLLOUT_FILES = ROOT.parent / "shared" / "data" / "published-rollout-configs"
needs_rollout_files = pytest.mark.skipif(
    not ROLLOUT_FILES.is_dir(), reason="the authors' rollout files are not here"
)
