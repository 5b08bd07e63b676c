"""Write herasimchyk2026/rollouts.csv from the rollout files in the authors' repository.

python tools/rollout_files.py position-bias/config/rollout/alibi
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from posbias.profiles.curves import wasserstein
from posbias.theory.content import ConstantDiagonal, NoContent
from posbias.theory.rollout.dispatch import influence
from posbias_papers.herasimchyk2026 import configs
from posbias_papers.herasimchyk2026.configs import CORPORA, HUB, TOKENS
from posbias_papers.herasimchyk2026.levels import as_read, rollout_architectures

SOURCE = "config/rollout/alibi of https://github.com/ml-uhh/position-bias (commit a514e09)"


def summaries(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """A row for each model and corpus of which `folder` holds a rollout file with content (`rollout_files`).

    Raises as `config_curves`.
    """
    files, rows = rollout_architectures(folder, TOKENS), []
    for model, corpus in ((model, corpus) for model in HUB for corpus in CORPORA if (model, corpus) in files):
        file = files[model, corpus]
        mixing, half = np.asarray(file.mixing.values(file.depth)), file.depth // 2
        diagonal = [
            layer.content.diagonal_of(layer.heads)
            for layer in file.stack
            if isinstance(layer.content, ConstantDiagonal)
        ]
        bare = as_read(files[model, ""], model, "published")
        same = as_read(file, model, "corrected")
        levels = {
            "first": bare,
            "published": as_read(file, model, "published"),
            "scaled": as_read(file, model, "published", True),
            "c": same,
            "b": replace(same, layers=tuple(replace(layer, content=NoContent()) for layer in same.layers)),
        }
        mass = {name: influence(one, TOKENS, threads=1).mass for name, one in levels.items()}
        row = {
            "model": model,
            "corpus": corpus,
            "lower": mixing[:half].mean(),
            "upper": mixing[-half:].mean(),
        }
        row |= {"positive": np.mean(np.concatenate(diagonal) > 0), "offset": np.concatenate(diagonal).mean()}
        row |= {name: float(wasserstein(mass["first"], mass[name])) for name in ("published", "scaled")}
        rows.append(row | {"shift": (mass["c"] - mass["b"]) @ np.linspace(0.0, 1.0, TOKENS)})
    return rows


if __name__ == "__main__":
    rows = summaries(sys.argv[1])
    lines = [f"# Computed from {SOURCE} by tools/rollout_files.py.", ",".join(rows[0])]
    lines += [",".join(one if isinstance(one, str) else f"{one:.6g}" for one in row.values()) for row in rows]
    Path(configs.__file__).with_name("rollouts.csv").write_text("\n".join(lines) + "\n", "utf-8")
