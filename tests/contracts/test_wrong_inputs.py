"""A wrong input of every public function is an error of ours; of every command one line with exit status 2.

The tables have the call, the type of the error, and the argument, key or file that its message names.
"""

import inspect
import shlex
from pathlib import Path

import numpy as np
import pytest
from command import called, commands
from measured import measurement
from project import cases

import posbias
from posbias import encodings, masks, mixing
from posbias.asking import Endpoint
from posbias.choice import Item
from posbias.cli.options import engine
from posbias.core.errors import ClusterError, InputFileError, InvalidValueError, OutputFileError, PosbiasError
from posbias.core.running import Processes
from posbias.retrieval import Session, ask, retrieval_job
from posbias.simulation import RecencyModel
from posbias.study import read_study, run_study
from posbias.training import Experiment
from posbias.training.cells import run_cells

TWO = posbias.Architecture(2)
EIGHT, NINE = (posbias.predict(TWO, tokens) for tokens in (8, 9))
MEASURED = measurement()
KEYS = retrieval_job("keys", pairs=4, positions=3, prompts=2)


def without(name):
    return MEASURED.drop_vars(name)


# the public name, what is called, and what the message begins with; of a class, after its name
FUNCTIONS = [
    ("alibi_slopes", lambda: posbias.alibi_slopes(0), "heads"),
    ("cache_of", lambda: posbias.cache_of(TWO, 8, "bfloat"), "cache_dtype"),
    ("check", lambda: posbias.check(print, max_gap=1.5), "max_gap"),
    ("choose", lambda: posbias.choose(print, [Item("", ("a", "b")), Item("", ("a", "b", "c"))]), "items"),
    ("compare", lambda: posbias.compare(EIGHT, NINE), "p"),
    ("compare_all", lambda: posbias.compare_all({"rollout": NINE}, EIGHT), "rollout"),
    ("decide", lambda: posbias.decide({"alone": EIGHT}, {}), "profiles"),
    ("design", lambda: posbias.design(TWO, {"window": [2, 3]}, tokens=16, target="flatt"), "target"),
    ("extrapolate", lambda: posbias.extrapolate(MEASURED, 0), "tokens"),
    ("gated", lambda: posbias.gated(TWO, [2.0]), "in_mixing"),
    ("head_shares", lambda: posbias.head_shares(MEASURED), "measurement"),
    ("influence", lambda: posbias.influence(TWO, 0), "tokens"),
    ("knock_out", lambda: posbias.knock_out("tiny-alibi", threads=0), "threads"),
    ("knock_out", lambda: posbias.knock_out("tiny-alibi", [(9, 0)]), "heads"),
    ("knock_out", lambda: posbias.knock_out("tiny-alibi", [3]), "heads"),
    ("knock_out", lambda: posbias.knock_out("tiny-alibi", [(0, 0)], region="first"), "region"),
    ("load_architecture", lambda: posbias.load_architecture("nowhere.toml"), "nowhere.toml"),
    ("load_architecture", lambda: posbias.load_architecture(3), "architecture"),
    ("choose", lambda: posbias.choose(print, []), "items"),
    ("compare", lambda: posbias.compare([1.0, 2.0], EIGHT), "profile"),
    ("decide", lambda: posbias.decide({"a": "bloom-560m", "b": EIGHT}, {}), "profiles: a"),
    ("load_measurement", lambda: posbias.load_measurement([1.0]), "measurement"),
    ("measured_influence", lambda: posbias.measured_influence("m.nc"), "measurement"),
    ("order", lambda: posbias.order(2, [0.5, 0.2], profile=[1.0, 2.0]), "profile"),
    ("train", lambda: posbias.train("spec.toml"), "experiment"),
    ("vary", lambda: posbias.vary(TWO, "dept", [], 8), "vary"),
    ("choose", lambda: posbias.choose(print, 3), "items"),
    ("choose", lambda: posbias.choose(print, [{"question": "", "options": ["a", "b"]}]), "items"),
    ("order", lambda: posbias.order(2.0, [0.5, 0.2], profile=EIGHT), "documents"),
    ("prior_normalised", lambda: posbias.prior_normalised([1.0, 2.0], EIGHT), "profile"),
    ("remedy", lambda: posbias.remedy(print, [("a", "b")]), "items"),
    ("simulate", lambda: posbias.simulate({"dimension": 16}, 10), "model"),
    ("load_measurement", lambda: posbias.load_measurement("nowhere.nc"), "nowhere.nc"),
    ("load_profile", lambda: posbias.load_profile("nowhere.json"), "nowhere.json"),
    ("measure", lambda: posbias.measure("tiny-alibi", tokens=1), "tokens"),
    ("measured_influence", lambda: posbias.measured_influence(without("influence")), "measurement"),
    ("order", lambda: posbias.order(3, [0.1, 0.2], profile=EIGHT), "scores"),
    ("plot", lambda: posbias.plot({"a": EIGHT, "b": TWO}), "profile"),
    ("plot", lambda: posbias.plot({}), "values"),
    ("plot", lambda: posbias.plot(EIGHT, size=3.4), "size"),
    ("predict", lambda: posbias.predict(TWO, 2.5), "tokens"),
    ("predictions", lambda: posbias.predictions(without("mixing")), "measurement"),
    ("preset", lambda: posbias.preset("bloom-7b"), "preset"),
    ("prior_normalised", lambda: posbias.prior_normalised(EIGHT, NINE), "prior"),
    ("read", lambda: posbias.read("nowhere.csv"), "nowhere.csv"),
    ("read", lambda: posbias.read([1, 2]), "profile"),
    ("remedy", lambda: posbias.remedy(print, [Item("", ("a", "b"))], ["none"]), "remedy"),
    ("report", lambda: posbias.report(without("mixing"), "out"), "measurement"),
    ("retrieve", lambda: posbias.retrieve("tiny-alibi", KEYS, threads=0), "threads"),
    ("rollout", lambda: posbias.rollout(TWO, 8, rows=[9]), "query"),
    ("save_measurement", lambda: posbias.save_measurement(MEASURED, "small.toml/m.nc"), "cannot write small"),
    ("simulate", lambda: posbias.simulate(RecencyModel(), 0), "samples"),
    ("train", lambda: posbias.train(Experiment(), device="cuda:99"), "device"),
    ("trajectory", lambda: posbias.trajectory(TWO, 0), "tokens"),
    ("vary", lambda: posbias.vary(TWO, "dept", [1, 2], 8), "vary"),
    ("write_report", lambda: posbias.write_report(without("kernel"), "out"), "measurement"),
    # classes
    ("Architecture", lambda: posbias.Architecture(2, mixing=mixing.PerLayer((0.1,) * 3)), "mixing"),
    ("CustomMask", lambda: masks.CustomMask(3), ""),
    ("DenseLogits", lambda: encodings.DenseLogits(3), "matrix"),
    ("RoPE", lambda: encodings.RoPE(((1.0,),), dimension=7), "dimension"),
    # below the root
    ("", lambda: encodings.rotary_of({}), "model_type"),
    ("", lambda: encodings.rotary_of("config.json"), "config"),
    ("", lambda: encodings.rope_of("config.json", 1.0), "config"),
    ("", lambda: retrieval_job("nedle"), "task"),
    ("", lambda: retrieval_job(pairs="5"), "pairs"),
    ("", lambda: Session(KEYS), "jobs"),
    ("", lambda: ask("model", KEYS), "generator"),
    ("", lambda: Item("", "ab"), "options"),
    ("", lambda: Item("", None), "options"),
    ("", lambda: Item("", ("a", "b"), right=2), "right"),
    ("", lambda: Item("", ("a", "b"), right="a"), "right"),
    ("", lambda: Item("", ("a", "b"), sides=("x", 1)), "sides"),
    ("", lambda: run_study("nowhere.toml", "results"), "nowhere.toml"),
    ("", lambda: Endpoint("ftp://host/v1", "model"), "endpoint"),
    ("", lambda: run_cells([Experiment()], "cells", sequences=0), "sequences"),
    ("", lambda: read_study("nowhere.toml"), "nowhere.toml"),
    ("", lambda: engine(0, None), "workers"),
    ("", lambda: engine(2, "auto"), "workers"),
    ("", lambda: engine(None, "atuo"), "ray"),
    ("", lambda: Processes(1, retries=-1), "retries"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Each test works in a folder with the files that the table names."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    return tmp_path


OTHERS = {
    "nowhere.toml": InputFileError, "nowhere.nc": InputFileError, "nowhere.json": InputFileError,
    "nowhere.csv": InputFileError, "cannot write small": OutputFileError, "ray": ClusterError,
}  # fmt: skip
"""The type of the error by what it names, where it is not of a wrong value."""


@pytest.mark.parametrize(
    ("name", "call", "argument"), FUNCTIONS, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_wrong_argument_is_named_in_one_line(name, call, argument):
    with pytest.raises(OTHERS.get(argument, InvalidValueError)) as caught:
        call()
    said = str(caught.value)
    assert (said.removeprefix(f"{name}: ") if name[:1].isupper() else said).startswith(argument)
    assert "\n" not in said


def test_every_public_function_is_tried():
    functions = {name for name in posbias.__all__ if inspect.isfunction(getattr(posbias, name))}
    assert functions <= {name for name, _, _ in FUNCTIONS}


SMALL = "depth = 6\nmixing = {kind = 'constant', value = 0.3}\n[[layers]]\npositional = {kind = 'alibi'}\n"
STUDY = 'question = "q"\n[base]\nkind = "simulate"\nsamples = 50\n'
CELL = "iterations = 30\n[sweep]\nnetwork.depth = [1, 2]\n"
HITS = '{"score": 1, "tokens": 3}\n'
FILES = {
    "small.toml": SMALL,
    "key.toml": "dept = 3",
    "broken.yaml": "depth: [1",
    "list.json": "[1, 2, 3]",
    "words.json": '{"profile": ["a"]}',
    "measured.json": '{"schema": "measure/1", "influence": "x"}',
    "broken.nc": "not NetCDF",
    "columns.csv": "where,ok\n0,1\n",
    "hits.jsonl": HITS * 2,
    "cut.jsonl": HITS + "{",
    "items.jsonl": '{"options": ["a", "b"]}\n' * 2,
    "one.jsonl": '{"options": ["a"]}\n',
    "twice.jsonl": '{"options": ["a", "b"], "options": ["c", "d"]}\n',
    "study.toml": STUDY,
    "claim.toml": STUDY + "[[claims]]\nclaim = 'c'\nquantity = 'recency_probabilty.1'\nabove = 0\n",
    "train.toml": CELL,
    "sweep.toml": CELL.replace("depth", "dept"),
}  # fmt: skip
LINES = cases("wrong_lines")


@pytest.mark.parametrize(("line", "named"), LINES, ids=[line for line, _ in LINES])
def test_a_wrong_command_line_is_one_line_with_exit_status_2(line, named, folder, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = called(*shlex.split(line))
    assert (done.returncode, done.stdout) == (2, "")
    *_, last = done.stderr.splitlines()
    assert last.startswith("posbias: ")
    assert named in last
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_every_command_is_tried():
    first = {tuple(line.split()[: len(command)]) for line, _ in LINES for command in commands()}
    missing = {command for command in commands() if command not in first}
    assert not missing


@pytest.mark.parametrize("suffix", [".nc", ".json", ".toml", ".csv", ".npz"])
def test_a_truncated_file_is_named(suffix):
    path = Path(f"file{suffix}")
    if suffix == ".nc":
        posbias.save_measurement(MEASURED, path)
    elif suffix == ".npz":
        np.savez(path, scores=np.ones((9, 9)))
    else:
        texts = {
            ".json": '{"profile": [0.5, 0.5]}',
            ".toml": "depth = [3]",
            ".csv": '"position","correct"\n0,1\n"1',
        }
        path.write_text(texts[suffix])
    path.write_bytes(path.read_bytes()[: -max(2, path.stat().st_size // 3)])
    read = posbias.load_architecture if suffix == ".toml" else posbias.read
    with pytest.raises(PosbiasError, match=path.name):
        read(path)
