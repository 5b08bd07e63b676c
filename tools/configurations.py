"""`posbias predict` on the default configurations of twelve families of 2026: writes docs/configurations-2026.md.

    python tools/configurations.py

Each is what its class in transformers has without any key, written to a folder as config.json; what is shown is
what the command answers there, so that a change of either shows in the page (held by `make test-all`).
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import transformers

from posbias.cli import main as posbias

PAGE = Path(__file__).parents[1] / "docs" / "configurations-2026.md"
FAMILIES = (
    "llama4", "gemma4", "qwen3", "qwen3_next", "mistral4", "deepseek_v4", "glm_moe_dsa", "olmo3", "exaone4",
    "gpt_oss", "lfm2", "nemotron_h",
)  # fmt: skip
TOKENS, LAMBDA = 256, 0.2
HEAD = """# Twelve configurations of 2026

`posbias predict FOLDER --tokens {tokens} --mixing {mixing} --json` on default configurations of transformers \
{version}, by `python tools/configurations.py`, held by `make test-all`. What withholds the verdict: \
[families](families.md#what-each-part-became). Released models: `posbias presets`. Shares are those of masks, \
residual and known logits. With the same λ everywhere deeper models go further to their first token, which says \
nothing of trained ones.

| family | engines | first 5 % | last 5 % | verdict |
|---|---|---|---|---|
"""


def answer(family: str, folder: Path) -> dict[str, Any]:
    """What the command says of a family's default configuration."""
    config = transformers.AutoConfig.for_model(family)
    (folder / "config.json").write_text(config.to_json_string(use_diff=False))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        posbias(["predict", str(folder), "--tokens", str(TOKENS), "--mixing", str(LAMBDA), "--json"])
    return json.loads(printed.getvalue())


def row(family: str, told: dict[str, Any]) -> str:
    """A line of the table."""
    engines = ", ".join(f"{name} {count}" for name, count in sorted(told["method"].items()))
    summary = told["summary"]
    shares = [f"{summary[end]:.1%}" for end in ("first_mass", "last_mass")]
    return f"| {' | '.join([family, engines, *shares, summary['verdict'] or 'withheld'])} |\n"


def page() -> str:
    """The page as it is now."""
    text = HEAD.format(tokens=TOKENS, mixing=LAMBDA, version=transformers.__version__)
    with tempfile.TemporaryDirectory() as folder:
        return text + "".join(row(family, answer(family, Path(folder))) for family in FAMILIES)


if __name__ == "__main__":
    sys.exit(PAGE.write_text(page()) and None)
