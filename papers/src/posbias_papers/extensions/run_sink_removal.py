"""Take the sink out of the model that has one (docs/predictors.md, "The sink taken out"): a line for each text.

python -m posbias_papers.extensions.run_sink_removal --out sink_removal.jsonl --work FOLDER [TEXT …]

What each way of reading gave is kept in the folder, so that an interrupted run goes on. A text takes a quarter to
half of an hour on one core.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from posbias.measurement import load_model, measure
from posbias.measurement.capture.removal import altered
from posbias.measurement.job import Request
from posbias_papers.extensions.cells import rounded
from posbias_papers.extensions.predictor_trials import DIGITS
from posbias_papers.extensions.run_predictors import novel
from posbias_papers.extensions.sink_trials import (
    KEPT_OUT,
    PLAIN,
    ROLLED,
    WAYS,
    alteration,
    given_by_layer,
    losses,
    readings,
    readings_in,
    sink_trial,
)

MODEL, TOKENS, PROMPTS, SEED, ALONE = "smollm2-135m", 256, 24, 2, 8
TEXTS = ("addresses", "layers", "novel")


def kept(path, compute):
    """An array of numbers by name, from its file if it is there."""
    if not path.exists():
        part = path.with_suffix(".part.npz")
        np.savez(part, **compute())
        part.rename(path)
    with np.load(path) as found:
        return dict(found)


def cell(loaded, text, work):
    """What one cell finds."""
    path = None
    if text == "novel":
        path = work / "novel.txt"
        path.write_text(novel(work), encoding="utf-8")
    request = Request(text=path, tokens=TOKENS, prompts=PROMPTS, seed=SEED)
    ids = request.draw(loaded).ids
    measured, read = {}, {}
    for way in ROLLED:
        asked = {"text": path, "tokens": TOKENS, "prompts": PROMPTS, "seed": SEED, "threads": 1}
        with altered(loaded.model, alteration(way)):
            measured[way] = measure(loaded, **asked, checkpoint=work / f"{text}-{way}.checkpoint")
        read[way] = readings_in(measured[way], way)
        print(text, way, file=sys.stderr, flush=True)
    for way in WAYS:
        if way not in ROLLED:
            read[way] = kept(work / f"{text}-{way}.npz", lambda way=way: readings(loaded, ids, way))
            print(text, way, file=sys.stderr, flush=True)
    given = kept(work / f"{text}-given.npz", lambda: {"given": given_by_layer(loaded, ids)})["given"]
    about = {"model": loaded.name, "text": text, "tokens": TOKENS, "prompts": PROMPTS}
    about |= {name: measured[PLAIN].attrs[name] for name in ("seed", "checksum", "text_sha256")}
    about |= {"versions": json.loads(measured[PLAIN].attrs["versions"])}
    return about | sink_trial(measured, read, given)


def single_layers(loaded, text, work):
    """What kept out costs in each layer alone, and in all, on the first prompts of the bundled text."""
    ids = Request(tokens=TOKENS, prompts=PROMPTS, seed=SEED).draw(loaded).ids[:ALONE]
    plain, depth = losses(loaded, ids, PLAIN), loaded.model.config.num_hidden_layers
    found = [losses(loaded, ids, KEPT_OUT, layer) - plain for layer in range(depth)]
    every = losses(loaded, ids, KEPT_OUT, *range(depth)) - plain
    about = {"model": loaded.name, "text": text, "tokens": TOKENS, "prompts": len(ids), "seed": SEED}
    return about | {"alone": [rounded(one, DIGITS) for one in found], "together": rounded(every, DIGITS)}


def main():
    """Go through the texts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("texts", nargs="*", default=TEXTS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    done = set()
    if options.out.exists():
        lines = map(json.loads, options.out.read_text(encoding="utf-8").splitlines())
        done = {one["text"] for one in lines}
    loaded = load_model(MODEL)
    for text in options.texts:
        if text not in done:
            found = (single_layers if text == "layers" else cell)(loaded, text, options.work)
            with options.out.open("a", encoding="utf-8") as out:
                out.write(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
