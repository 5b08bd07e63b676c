"""Measure the 7-billion models of Herasimchyk et al. 2026 from local folders, and turn the result into a record.

    python tools/paper_models.py MODELS fineweb.jsonl [--minutes 10] [--device cuda] [--out results/paper-models]

MODELS has a folder for each model, named as in the paper (falcon-rw-7b, mpt-7b, bloom-7b); others are left out.
Each gets as many prompts of the paper's 256 tokens as fit into `--minutes` (at most 1,000): beginnings of the
documents of a .jsonl, windows of any other text. Measurements stay in OUT/cells, so that the same command resumes.
OUT/records.csv is what `posbias_papers/herasimchyk2026/records.csv` becomes. A text counts as the paper's where
its name has fineweb, dclm or wiki in it. `--rehearse` first makes small random models of the three families.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from posbias.measurement import load_model, measure
from posbias.profiles.measurements import load_measurement, save_measurement
from posbias_papers.herasimchyk2026.configs import PROMPTS, TOKENS, model_of
from posbias_papers.herasimchyk2026.measure import Key
from posbias_papers.herasimchyk2026.table import RECORDS, Measured, record

NAMES = ("falcon-rw-7b", "mpt-7b", "bloom-7b")
FIRST = 4
"""Prompts that are measured to learn how long one takes."""
SHARE = 0.8
"""Of the time, what is planned for; the rest is loading and saving."""


def rehearsal(folder: Path) -> None:
    """Random models of the three families, with eight heads in four layers."""
    from transformers import AutoTokenizer, BloomConfig, FalconConfig, MptConfig
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    from posbias.measurement.models.sources import bundled

    tokenizer = AutoTokenizer.from_pretrained(bundled()["tiny-alibi"])
    size: dict[str, Any] = {"vocab_size": len(tokenizer), "hidden_size": 64}
    falcon = {
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "alibi": True,
        "new_decoder_architecture": False,
    }
    configs = {
        "falcon-rw-7b": FalconConfig(**size, **falcon, multi_query=False, parallel_attn=False, bias=True),
        "mpt-7b": MptConfig(
            vocab_size=size["vocab_size"], d_model=64, n_layers=4, n_heads=8, max_seq_len=512
        ),
        "bloom-7b": BloomConfig(**size, n_layer=4, n_head=8),
    }
    for name, config in configs.items():
        AutoModelForCausalLM.from_config(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def measured(folder: Path, text: Path, minutes: float, device: str, out: Path) -> Path:
    """The file of a model's measurement, made unless it is there."""
    path = out / f"{folder.name}.nc"
    if path.exists():
        return path
    began = time.monotonic()
    loaded = load_model(folder, device=device, dtype="float32" if device == "cpu" else "bfloat16")
    job: dict[str, Any] = {
        "text": text,
        "tokens": TOKENS,
        "packed": text.suffix != ".jsonl",
        "dense_logits": True,
    }
    start = time.monotonic()
    measure(loaded, **job, prompts=FIRST)
    each, left = (time.monotonic() - start) / FIRST, SHARE * 60 * minutes - (time.monotonic() - began)
    prompts = max(FIRST, min(PROMPTS, int(left / each)))
    print(f"{folder.name}: {each:.2f} s a prompt, {prompts} prompts", flush=True)
    checkpoint = path.with_suffix(".partial.npz")
    found = measure(loaded, **job, prompts=prompts, checkpoint=checkpoint)
    found.attrs["parameters"] = sum(weights.numel() for weights in loaded.model.parameters())
    found.attrs["model"] = folder.name
    save_measurement(found, path)
    checkpoint.unlink(missing_ok=True)
    return path


def merged(cells: dict[Key, Any]) -> str:
    """The records with these measurements: rows of their models are replaced, all others stay."""
    import io

    import pandas as pd

    as_text: dict[str, Any] = {"dtype": str, "keep_default_na": False}
    old, new = pd.read_csv(RECORDS, **as_text), pd.read_csv(io.StringIO(record(Measured(cells))), **as_text)
    again = old["source"].eq("unknown") | old["model"].isin([key.model for key in cells])
    rows = pd.concat([old[~again], new])
    known = rows.query("kind == 'schedules' and source != 'unknown'")["model"]
    return rows[rows["source"].ne("unknown") | ~rows["model"].isin(known)].fillna("").to_csv(index=False)


def main() -> None:
    """Measure what MODELS has, and write the records."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("results/paper-models"))
    parser.add_argument("--rehearse", action="store_true")
    given = parser.parse_args()
    if given.rehearse:
        rehearsal(given.models)
    (given.out / "cells").mkdir(parents=True, exist_ok=True)
    folders = [given.models / name for name in NAMES if (given.models / name).is_dir()]
    cells = {}
    for folder in folders:
        path = measured(folder, given.text, given.minutes, given.device, given.out / "cells")
        cell = load_measurement(path)
        cells[Key(model_of(folder.name), str(cell.attrs["text"]), TOKENS)] = cell
    (given.out / "records.csv").write_text(merged(cells), encoding="utf-8")
    print(
        json.dumps({"models": [folder.name for folder in folders], "records": str(given.out / "records.csv")})
    )


if __name__ == "__main__":
    main()
