"""Numbers that others published of their decisions, from their own files through the readers.

POSBIAS_DECISIONS names a folder with clones of princeton-nlp/LLMBar, Slimshilin/Position-Bias-Analyzer (MIT),
thierry123454/tool-selection-bias (no licence: nothing of it is kept here); skipped without it.
"""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from posbias.choice.answer import read_choices
from posbias.imports.decisions import read_decisions
from posbias.profiles.decisions import REFUSED, TIE

CLONES = Path(os.environ.get("POSBIAS_DECISIONS", "absent"))
TOOLS = "4_gather_and_visualize_data/selection_stats"
pytestmark = pytest.mark.skipif(not CLONES.is_dir(), reason="POSBIAS_DECISIONS names no folder of clones")


def clone(name: str) -> Path:
    return next(path for path in CLONES.iterdir() if name in path.name)


def test_every_statistics_file_of_llmbar():
    files = sorted(clone("LLMBar").rglob("result.json"))
    for file in files:
        (held,) = read_decisions(file).values()
        said = json.loads((file.parent / "statistics.json").read_text())
        kept, swapped = held.option.reshape(-1, 2).T.copy()
        rated = "Rating" in file.parent.name  # scored one by one: the file names an output all the same
        for kind, named in {TIE: (1, 0), REFUSED: (0, 1)}.items() if rated else ():
            where = kept == kind
            kept[where], swapped[where] = named
        right = np.array(held.right)[held.item[::2]]
        found = {"False": kept == right, "True": swapped == right}
        counts = {f"correct_{name}": one.sum() for name, one in found.items()}
        counts |= {"correct_both": (found["False"] & found["True"]).sum(), "equal": (kept == swapped).sum()}
        for name, count in counts.items():
            assert said[name].startswith(f"{count} / {len(kept)} ="), (file, name)
    assert len(files) == 499


def test_consistent_answers_of_position_bias_analyzer():
    """Their count also has each answer whose counterpart could not be read."""
    files = [file for file in clone("Analyzer").rglob("record_*.tsv") if "_repetition" in str(file)]
    for file in files:
        (held,) = read_decisions(file).values()
        pairs = held.option[held.pairs[~held.same_order]]
        read = pairs != REFUSED
        found = 2 * (read.all(axis=1) & (pairs[:, 0] == pairs[:, 1])).sum() + (read.sum(axis=1) == 1).sum()
        said = re.search(r"(\d+) out of \d+ answers are consistent", (file.parent / "log.txt").read_text())
        assert said is not None, file
        assert int(said[1]) == found, file
    assert len(files) == 54


@pytest.mark.parametrize(
    ("model", "deltas"),
    [
        ("gemini", (0.365, 0.306, 0.335)),
        ("claude", (0.370, 0.325, 0.347)),
        ("chatgpt_4", (0.331, 0.423, 0.377)),
    ],
)
def test_slots_of_tool_selection(tmp_path, model, deltas):
    for run in ("", "-2", "-3"):
        name = f"api_selection_stats_{model}{run}.json"
        (tmp_path / name).write_bytes((clone("tool-selection-bias") / TOOLS / name).read_bytes())
    (answer,) = read_choices(tmp_path).values()
    assert tuple(round(one, 3) for one in answer.deltas.values()) == deltas
    assert answer.effects.sets == 10
    if model == "claude":
        found = [slot.value for slot in answer.effects.slots]
        np.testing.assert_allclose(found, (1.83, -0.30, -0.29, -0.88, -0.35), atol=0.1)
        assert [round(one.value, 2) for one in answer.effects.flips] == [0.59, 0.14]
