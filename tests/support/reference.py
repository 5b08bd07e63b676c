"""The numbers of tests/reference.json, computed anew: `python tests/support/reference.py [SECTION …]` writes them.

They guard every redesign: an entry changes only with a reason in the commit. Numbers are found by what users type
and by the keys of `--json`, so that the code behind may move.
"""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from command import SMALL_TASK, called

import posbias
from posbias import encodings, masks, mixing

FILE = Path(__file__).parents[1] / "reference.json"
LENGTHS = (33, 256, 1024)
HALF = mixing.ConstantMixing(0.5)


def alike(depth: int, **layer: Any) -> posbias.Architecture:
    """Layers that are alike, λ = 1/2."""
    return posbias.Architecture(depth, (posbias.Layer(**layer),), HALF)


FREQUENCIES = {"frequencies": (1.0, 0.1, 0.01)}
ARCHITECTURES = {
    "nope": posbias.Architecture(6, mixing=HALF),
    "attention only": posbias.Architecture(3, mixing=mixing.AttentionOnly()),
    "initial": posbias.Architecture(12, mixing=mixing.PreNormInit()),
    "decaying mixing": posbias.Architecture(12, mixing=mixing.PowerDecay(0.8, 0.5)),
    "alibi": alike(8, heads=8, positional=encodings.ALiBi()),
    "alibi, 12 heads": alike(4, heads=12, positional=encodings.ALiBi()),
    "decay": alike(4, positional=encodings.DecayBias(0.2)),
    "t5": alike(3, positional=encodings.T5((tuple(np.linspace(1, -2, 32)),))),
    "kerple": alike(3, positional=encodings.KerpleLog((1.0,), (0.5,))),
    "kerple power": alike(3, positional=encodings.KerplePower((0.1,), (0.5,))),
    "rope": alike(3, positional=encodings.RoPE(((1.0, 0.5, 2.0),), **FREQUENCIES)),
    "sandwich": alike(2, heads=4, positional=encodings.Sandwich()),
    "window": alike(6, mask=masks.SlidingWindow(16)),
    "window and full": posbias.Architecture(
        6, (*[posbias.Layer(mask=masks.SlidingWindow(16))] * 2, posbias.Layer()), HALF
    ),
    "window with sinks": alike(4, mask=masks.SlidingWindow(16, sinks=2)),
    "chunked": alike(4, mask=masks.Chunked(32)),
    "dilated": alike(4, mask=masks.Dilated(3)),
    "prefix": alike(4, mask=masks.Prefix(8)),
    "full": alike(4, mask=masks.Full()),
    "content": alike(4, heads=2, positional=encodings.ALiBi(), content=posbias.ConstantDiagonal((1.5,))),
}
SMALL = "seeds = [0, 1]\niterations = 200\nbatch = 16\nevaluate_every = 50" + SMALL_TASK
HITS = [
    {"text": "a" * size, "score": score} for size, score in ((400, 0.9), (200, 0.5), (300, 0.4), (100, 0.1))
]
COUNTS = {"none": [0, 0, 0], "all": [40, 40, 40], "some": [30, 18, 34]}


def asked(*words: object) -> Any:
    """What a command prints with --json."""
    done = called(*words, "--json")
    if done.returncode not in (0, 4):
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def numbers(answer: Any, place: str = "") -> Iterator[tuple[str, float | str]]:
    """Leaves of an answer by their place; texts are verdicts and names, long ones left out, and nulls."""
    if isinstance(answer, dict):
        for key, inner in answer.items():
            yield from numbers(inner, f"{place}/{key}" if place else str(key))
    elif isinstance(answer, list | tuple):
        for number, inner in enumerate(answer):
            yield from numbers(inner, f"{place}/{number}")
    elif answer is not None and (not isinstance(answer, str) or len(answer) < 30):
        yield place, answer


def probe(array: Any) -> list[float]:
    """Two sums over an array, one of them with weights that no permutation of it leaves as it is."""
    flat = np.nan_to_num(np.asarray(array, float), posinf=0, neginf=0).ravel()
    return [float(flat.sum()), float(flat @ np.cos(np.arange(flat.size) + 1.0))]


def theory() -> dict[str, Any]:
    """First, middle and last influence of 20 architectures at three lengths, and of four presets."""
    found = {}
    for name, architecture in ARCHITECTURES.items():
        for tokens in LENGTHS:
            mass = posbias.predict(architecture, tokens=tokens).mass
            found[f"{name}, {tokens}"] = [
                *map(float, (mass[0], mass[tokens // 2], mass[-1])),
                *probe(mass)[1:],
            ]
    for preset in ("bloom-176b", "bloom-560m", "gpt-oss-20b", "gemma-3-27b"):
        answer = asked("predict", preset, "--tokens", 512)
        found[preset] = [answer["profile"][0], *probe(answer["profile"])[1:], answer["summary"]["flatness"]]
        if answer["band"] is None:  # its λ is known
            continue
        found[f"{preset}, band"] = [*probe(answer["band"]["low"])[1:], *probe(answer["band"]["high"])[1:]]
        found[f"{preset}, verdicts"] = [*answer["band"]["verdicts"].values()]
    return found


def measurement() -> dict[str, Any]:
    """Every variable of two tiny measurements."""
    from tiny import WORDS, llama, word_tokenizer

    Path("words.txt").write_text(" ".join(WORDS * 8))
    jobs = {
        "tiny-alibi": posbias.measure(
            "tiny-alibi", tokens=32, prompts=4, rollouts=("kernel", "value", "energy")
        ),
        "llama": posbias.measure(
            llama(), tokenizer=word_tokenizer(), text="words.txt", tokens=16, prompts=4, influences=("logit",)
        ),
    }
    return {
        f"{model}, {name}": probe(held)
        for model, dataset in jobs.items()
        for name, held in dataset.data_vars.items()
        if held.dtype.kind in "fiu"
    }


def simulation() -> dict[str, Any]:
    """Recency probabilities by layer with their errors, and the mean score of the last query and the first key."""
    cases = {"plain": (), "residual": ("--residual",), "none": ("--norm", "none"), "d 64": ("--d", 64)}
    found = {}
    for name, words in cases.items():
        answer = asked("simulate", "layernorm", "--effort", 20_000, *words)
        found[name] = [[row["value"], row["se"]] for row in answer["recency_probability"]]
        found[f"{name}, scores"] = [row["value"][-1][0] for row in answer["mean_scores"]]
    return found


def training() -> dict[str, Any]:
    """A cell of two networks: value and error of what it is judged by."""
    Path("small.toml").write_text(SMALL)
    answer = asked("train", "small.toml", "--sequences", 400, "--threads", 1, "--out", "trained")
    rows = {**answer["gaps"], "loss": answer["loss"], "in-context accuracy": answer["in_context_accuracy"]}
    by_network = {"loss by network": answer["loss"]["members"]}
    return {name: [row["value"], row["se_sequences"]] for name, row in rows.items()} | by_network


def retrieval() -> dict[str, Any]:
    """Curves, gaps and intervals of a retrieval by margins, and of one by answers."""
    from http_servers import prompt_of, serving
    from readers import reads

    margins = asked("retrieve", "tiny-alibi", "--pairs", 4, "--positions", 3, "--prompts", 8, "--out", "k")
    with serving(lambda _, body: reads(prompt_of(body), first=2, last=1)) as server:
        lists = ("--pairs", 6, "--positions", 3, "--wording", "json", "--prompts", 20, "--out", "e")
        answers = asked("retrieve", "toy", "--endpoint", server.url, *lists)
    kept = {"margins": margins, "answers": answers["curves"][0]}
    return {
        f"{name}/{place}": number
        for name, answer in kept.items()
        for key in ("chance", "verdict", "overall", "positions", "differences")
        if key in answer
        for place, number in numbers({key: answer[key]})
    }


def use() -> dict[str, Any]:
    """An order with its gains, and a front of designs."""
    Path("hits.json").write_text(json.dumps(HITS))
    found: dict[str, Any] = {}
    for name, counts in COUNTS.items():
        Path("curve.csv").write_text(
            "position,correct,n\n" + "".join(f"{place},{right},40\n" for place, right in enumerate(counts))
        )
        named = {"place": "position", "score": "correct", "total": "n"}
        columns = [word for role, column in named.items() for word in ("--columns", f"{role}={column}")]
        answer = asked("order", "hits.json", "--profile", "curve.csv", *columns)
        found |= {f"order {name}/{key}": value for key, value in numbers(answer["gains"])}
        found |= {f"order {name}/{key}": answer[key] for key in ("permutation", "recommended")}
        profile = posbias.read("curve.csv", columns=named)
        found[f"curve {name}"] = [profile.mass.tolist(), np.asarray(profile.se).tolist()]
    Path("base.toml").write_text(
        "depth = 4\nmixing = {kind = 'constant', value = 0.3}\n"
        "layers = [{heads = 2, positional = {kind = 'alibi'}}]\n"
    )
    varied = ("--vary", "window=8,16,32", "--vary", "depth=2,4,8")
    front = asked("design", "base.toml", "--tokens", 64, *varied, "--out", "d")["front"]
    found["front"] = [
        [one["values"]["window"], one["values"]["depth"], one["distance"], one["cache"], one["reach"]]
        for one in front
    ]
    return found


def scores() -> dict[str, Any]:
    """Scores with their intervals, of predictors and of profiles, one distance near 0."""
    from measured import measurement as made

    posbias.save_measurement(made(), "made.nc")
    near = made(seed=2)
    posbias.save_measurement(near, "near.nc")
    found: dict[str, Any] = {}
    asked("predict", "bloom-560m", "--tokens", 48, "--out", "p.json")
    for name, pair in {"prediction": ("p.json", "made.nc"), "near": ("near.nc", "made.nc")}.items():
        answer = asked("compare", *pair)
        kept = {
            key: answer[key] for key in ("spearman", "wasserstein", "intervals", "baselines", "reliability")
        }
        found |= {f"{name}/{place}": number for place, number in numbers(kept)}
    return found


def statements() -> dict[str, Any]:
    """Verdicts of all numbered statements as printed and as corrected, and by how much each holds."""
    answer = asked("verify", "--effort", 20, "--out", "v")
    return {
        one["key"]: [one["verdict"], one["amended"], one["slack"], one["published_slack"]]
        for one in answer["statements"]
    }


def claims() -> dict[str, Any]:
    """Claims of the papers' own as they are judged from the record.

    Numbers of statements stay: they are kept for more instances than are tried here.
    """
    kept, rows = json.loads(FILE.read_text())["claims"], {}
    for one in json.loads(called("paper", "claims", "--json").stdout)["claims"]:
        if one["provenance"] == "paper" and not one["alias_of"]:
            name, row = one["id"], [one[key] for key in ("verdict", "number", "se", "effort")]
            if name in kept and kept[name][3].endswith(" instances"):
                row[1:] = kept[name][1:4]
            rows[name] = [*row, one["place"], one["strength"], one["scope"]]
    return rows


SECTIONS: dict[str, tuple[Callable[[], dict[str, Any]], float]] = {
    "theory": (theory, 1e-9),
    "measurement": (measurement, 1e-6),
    "simulation": (simulation, 1e-9),
    "training": (training, 0.0),
    "retrieval": (retrieval, 1e-6),
    "use": (use, 1e-9),
    "scores": (scores, 1e-9),
    "statements": (statements, 1e-9),
    "claims": (claims, 1e-9),
}
"""What computes a section, and within what relative tolerance its numbers stay; training stays within
4 errors, its losses within a thousandth."""


def computed(section: str) -> dict[str, Any]:
    """The numbers of a section, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return SECTIONS[section][0]()


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path.insert(0, str(FILE.parents[1] / "tools"))
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in sys.argv[1:] or SECTIONS:
        kept[name] = computed(name)
    lines = [
        f'"{name}": {{\n'
        + ",\n".join(
            f"{json.dumps(key)}: {json.dumps(held, ensure_ascii=False)}" for key, held in kept[name].items()
        )
        + "\n}"
        for name in kept
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
