"""Run the behaviour half of the fair test (docs/predictors.md): a line for each cell of model, wording and places.

python -m posbias_papers.extensions.run_behaviour --out behaviour.jsonl [MODEL …]

A line is appended when its cell ends; cells that are in the file are not run again. Short lists come first: the
long ones of the small decoders, which read a list anew for each answer, take hours.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

from posbias.core.errors import InvalidValueError
from posbias.measurement import load_model, measure
from posbias.retrieval.local import retrieval_job, retrieve
from posbias_papers.extensions.behaviour_trials import behaviour_trial

MODELS = ("tiny-nope", "tiny-alibi", "tiny-rope", "tiny-learned", "tiny-window", "smollm2-135m")
PLACES, WORDINGS = (5, 10, 20), ("json", "list")
TRIALS, PROMPTS, SEED = 200, 64, 1


def cell(loaded, wording, places):
    """What one cell finds."""
    job = retrieval_job("keys", pairs=places, positions=places, wording=wording, prompts=TRIALS, seed=SEED)
    try:
        asked = retrieve(loaded, job)
    except InvalidValueError as error:
        return {"model": loaded.name, "wording": wording, "places": places, "refused": str(error)}
    length = round(float(asked["tokens"].mean()))
    found = measure(loaded, tokens=length, prompts=PROMPTS, seed=SEED)
    about = {"model": loaded.name, "wording": wording, "places": places}
    about |= {name: found.attrs[name] for name in ("checksum", "seed")}
    about["versions"] = json.loads(found.attrs["versions"])
    return about | behaviour_trial(asked, found, SEED)


def main():
    """Go through the cells, short lists first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    done = set()
    if given.out.exists():
        lines = map(json.loads, given.out.read_text(encoding="utf-8").splitlines())
        done = {(one["model"], one["wording"], one["places"]) for one in lines}
    for places in PLACES:
        for model, wording in itertools.product(given.models, WORDINGS):
            if (model, wording, places) not in done:
                found = cell(load_model(model), wording, places)
                with given.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(found, separators=(",", ":")) + "\n")
                print(model, wording, places, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
