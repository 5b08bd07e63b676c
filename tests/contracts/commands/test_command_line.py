"""The commands as a user runs them: real files, what they print and how they end; full disks in processes."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import called

from posbias.cli import COMPILING, main
from posbias.theory.architecture import Architecture
from posbias.theory.mixing import ConstantMixing
from posbias.theory.rollout.dispatch import influence

POSBIAS = Path(sys.executable).with_name("posbias")
ARCHITECTURE = """
depth = 6
mixing = {kind = "constant", value = 0.3}
[[layers]]
heads = 4
positional = {kind = "alibi"}
"""


def run(*arguments, cwd=None, limit_bytes=None):
    """A command; with a limit to the size of files, in a process of its own."""
    if limit_bytes is None:
        return called(*arguments, cwd=cwd)
    return subprocess.run(
        [POSBIAS, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        # Python itself does not notice that it could write a part of a .pyc alone
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes)),
        timeout=300,
        check=False,
    )


@pytest.fixture
def architecture(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(ARCHITECTURE)
    return path


@pytest.mark.parametrize(
    "command", ["predict", "measure", "compare", "report", "train", "verify", "presets", "models"]
)
def test_help_explains_every_parameter(command):
    done = run(command, "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout
    assert "Usage: posbias " + command in done.stdout


def test_predict_prints_the_profile_as_json(architecture):
    done = run("predict", architecture, "--tokens", 300, "--query", -2, "--json")
    answer = json.loads(done.stdout)
    assert list(answer)[:6] == ["schema", "tokens", "query", "measures", "profile", "summary"]
    assert (answer["tokens"], answer["query"]) == (300, 298)
    from posbias.theory.configs import load_architecture

    np.testing.assert_array_equal(answer["profile"], influence(load_architecture(architecture), 300, -2).mass)
    assert answer["architecture"]["depth"] == 6
    assert answer["summary"]["verdict"] in ("U", "primacy", "recency", "flat")
    assert done.stderr.strip() in ("", COMPILING)


def test_predict_says_what_it_assumed(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 2}))
    done = run("predict", config)
    assert "assumed: mixing: no λ was given" in done.stderr
    assert "assumed: positional: rotary acts through queries and keys" in done.stderr
    told = run("predict", config, "--mixing", "abnar-zuidema", "--json")
    assert "no λ was given" not in told.stderr
    assert json.loads(told.stdout)["exact"] is False


def test_predict_writes_and_compare_reads(architecture, tmp_path):
    assert run("predict", architecture, "--tokens", 50, "--out", tmp_path / "p.json").returncode == 0
    (tmp_path / "q.json").write_text(json.dumps([1] * 50))
    done = run("compare", tmp_path / "p.json", tmp_path / "q.json", "--json")
    answer = json.loads(done.stdout)
    assert answer["spearman"] is None
    mass = influence(Architecture(1, mixing=ConstantMixing(0.0)), 1).mass
    assert mass == [1.0]
    assert 0 < answer["wasserstein"] < 1
    assert set(answer["baselines"]) == {"uniform", "recency_only"}
    same = json.loads(run("compare", tmp_path / "p.json", tmp_path / "p.json", "--json").stdout)
    assert same["spearman"] == pytest.approx(1)
    assert same["wasserstein"] == 0
    picture = tmp_path / "both.svg"
    table = run("compare", tmp_path / "p.json", tmp_path / "q.json", "--plot", picture).stdout
    assert "p.json: Spearman" in picture.read_text()
    assert "baseline: 1/(distance + 1)" in table
    (tmp_path / "r.json").write_text(json.dumps([1.0 + j % 3 for j in range(50)]))
    (tmp_path / "s.json").write_text(json.dumps([1 / (50 - j) for j in range(50)]))
    told = run("compare", tmp_path / "r.json", tmp_path / "s.json").stdout
    assert (
        "r.json: better than an even spread by Wasserstein; worse than 1/(distance + 1) by Spearman" in told
    )
    told = run("compare", tmp_path / "s.json", tmp_path / "r.json", "--json")
    sides = {one["less"]: one["verdicts"] for one in json.loads(told.stdout)["leads"]}
    assert sides["recency_only"]["spearman"] == sides["recency_only"]["wasserstein"] == "open"


@pytest.mark.parametrize(
    "suffix", ["svg", *(pytest.param(one, marks=pytest.mark.slow) for one in ("png", "pdf"))]
)
def test_predict_draws(architecture, tmp_path, suffix):
    picture = tmp_path / f"profile.{suffix}"
    assert run("predict", architecture, "--plot", picture).returncode == 0
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert picture.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "nowhere.toml"], "nowhere.toml: no such file"),
        (["predict", "small.tml"], "did you mean 'small.toml'"),
        (["predict", "broken.yaml"], "broken.yaml: not valid YAML"),
        (["predict", "unknown.toml"], "unknown key 'dept'; did you mean 'depth'"),
        (["predict", "lambda.toml"], "mixing.value: 1.5 given, a number ≤ 1 needed"),
        (["predict", "slopes.json"], "slopes: 2 given, one or 3 (one per head) needed"),
        (["predict", "small.toml", "--tokens", "0"], "tokens: 0 given"),
        (["predict", "small.toml", "--tokens", "-4"], "tokens: -4 given"),
        (["predict", "small.toml", "--tokens", "9000000000000"], "that takes about"),
        (["predict", "small.toml", "--tokens", "many"], "many"),
        (["predict", "small.toml", "--query", "256"], "query: 256 given, a position from -256 to 255 needed"),
        (["predict", "small.toml", "--mixing", "nan"], "mixing: nan given"),
        (["predict", "small.toml", "--mixing", "atention_only"], "did you mean 'attention_only'"),
        (["predict", "small.toml", "--plot", "p.bmpp"], "'bmpp' given, one of svg, png, pdf needed"),
        (["predict", "small.toml", "--tokns", "4"], "--tokns"),
        (["preditc", "small.toml"], 'Did you mean "predict"'),
        (["compare", "list.json", "words.json"], "words.json: holds no list of numbers"),
        (["compare", "list.json", "longer.json"], "3 positions given, 4 needed"),
        (["compare", "list.json", "negative.json"], "negative.json: mass: negative"),
        (["compare", "list.json", "broken.nc"], "broken.nc: not a readable NetCDF file"),
        (["compare", "list.json", "other.nc"], "other.nc: no such file"),
        (["measure", "--out", "m.txt"], "out: 'm.txt' given, a name ending in .nc needed"),
        (["measure", "--tokens", "0"], "tokens: 0 given, an integer ≥ 2 needed"),
        (["measure", "--prompts", "0"], "prompts: 0 given"),
        (["measure", "--text", "none.txt"], "none.txt does not exist"),
        (["measure", "--out", "small.toml/m.nc"], "small.toml is no folder"),
        (["measure", ""], "model: '' given"),
        (["report", "--out", "r.nc"], "a folder needed"),
        (["report", "broken.nc", "--tokens", "99"], "tokens: given with a finished measurement"),
        (["models", "--rerun"], "--fetch MODEL needed"),
        (["predict", "small.toml", "--tokens", "2.5"], "'2.5' given, an integer needed"),
        (["predict", "small.toml", "--query", "1.5"], "'1.5' given, an integer needed"),
        (["predict", "small.toml", "--out", "/dev/full"], "cannot write /dev/full: it is no ordinary file"),
        (["predict", "small.toml", "--out", "."], "it is a folder"),
        (["predict", "twice.yaml"], "key 'depth' is given twice"),
        (["predict", "twice.json"], "key 'depth' is given twice"),
        (["predict", "deep.json"], "nested too deeply"),
        (["predict", "digits.json"], "digits"),
        (["predict", "date.yaml"], "month must be in 1..12"),
        (["predict", "many.toml"], "depth: 1000000000 given, a number ≤ 100000"),
        (["predict", "empty.yaml"], "holds nothing"),
        (["predict", "small.toml", "--vary", "dept=1:4"], "did you mean 'depth'"),
        (["predict", "small.toml", "--vary", "depth=1:4", "--depth-trajectory"], "one of the two needed"),
        (["predict", "small.toml", "--method", "fft"], "method: 'fft' given, sweep or stream needed"),
        (["predict", "small.toml", "--method", "swep"], "did you mean 'sweep'"),
        (["predict", "small.toml", "--vary", "depth=0:5"], "depth: 0 given, 1 to 100,000 needed"),
        (["predict", "broken.nc"], "broken.nc: a measurement's .nc given, an architecture needed"),
        (["predict", "curve.png"], "curve.png: suffix '.png' given, .toml, .yaml, .yml or .json needed"),
        (["predict"], "architecture: none given, one needed: A TOML, YAML or JSON file"),
        (["compare", "list.json"], "q: none given, one needed: The reference, in any of the same forms"),
        (["compare", "bloom-176b", "list.json"], "bloom-176b: an architecture's name given, a file with a"),
        (["compare", "small.toml", "list.json"], "small.toml: an architecture's file given, a file with"),
        (["compare", "model", "list.json"], "model: a model's folder given, a file with a profile needed"),
        (["compare", "model/config.json", "list.json"], "`posbias predict model/config.json --tokens N --out"),
        (["predict", "cased.toml"], "kind 'ALiBi' given, one of nope, alibi"),
        (["predict", "cased.toml"], "did you mean 'alibi'?"),
        (["predict", "shared.toml"], "'layers[0].num_key_value_heads'"),
        (["predict", "wide.toml"], "unknown key 'layers[0].mask.window'"),
        (["predict", "number.toml"], 'mixing: 0.3 given, keys with values needed'),
        (["compare", "list.json", "tiny-rope"], "`posbias predict tiny-rope --tokens N --out FILE` writes"),
        (["compare", "curve", "list.json"], "posbias: curve: no such file\n"),
        (["compare", "list.jsom", "list.json"], "list.jsom: no such file; did you mean 'list.json'?"),
        (["predict", "small.toml", "--tokens", "32", "--tokens", "64"], "--tokens: given 2 times, once needed"),
        (["predict", "blom-176b"], "no preset; did you mean 'bloom-176b'"),
        (["verify", "wu-4.1", "--out", "small.toml/x"], "small.toml is no folder"),
        (["verify", "wu-4.9"], "statement: 'wu-4.9' is not one of them; did you mean"),
        (["predict", "prefix.toml"], "length: expected a prefix of at most the text's 256 tokens, got 300"),
        (["predict", "table.toml"], "table: 2 distances given, at least 256 needed"),
        (["predict", "overflow.toml"], "positional: its logits overflow"),
        (["predict", "cold.toml"], "temperature: 1e-300 given; logits divided by it overflow"),
        (["compare", "list.json", "huge.json"], "huge.json: int too large"),
        (["compare", "list.json", "query.json"], "query: 'a' given"),
        (["compare", "list.json", "earlier.json"], "influence on position 2 given, on 1 needed"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(architecture, tmp_path, arguments, words, capsys, monkeypatch):
    """The command's own entry, in this process: some sixty of them would start for two minutes."""
    files = {
        "broken.yaml": "depth: [1",
        "unknown.toml": "dept = 3",
        "lambda.toml": ARCHITECTURE.replace("0.3", "1.5"),
        "slopes.json": '{"depth": 1, "layers": [{"heads": 3, "positional": {"kind": "alibi", "slopes": [1, 2]}}]}',
        "list.json": "[1, 2, 3]",
        "longer.json": "[1, 2, 3, 4]",
        "negative.json": "[1, 2, -1]",
        "words.json": '{"profile": ["a"]}',
        "broken.nc": "not NetCDF",
        "curve.png": "no picture",
        "twice.yaml": "depth: 1\nmixing: {kind: constant, value: 0.1}\ndepth: 2\n",
        "twice.json": '{"depth": 1, "depth": 2}',
        "deep.json": "[" * 100_000,
        "digits.json": '{"depth": ' + "9" * 5000 + "}",
        "date.yaml": "name: 2024-13-45",
        "circle.yaml": "depth: 1\nlayers: &a [*a]",
        "many.toml": "depth = 1000000000",
        "empty.yaml": "",
        "prefix.toml": "depth = 2\n[[layers]]\nmask = {kind = 'prefix', length = 300}",
        "table.toml": "depth = 2\n[[layers]]\npositional = {kind = 'tabulated', table = [0.0, -1.0]}",
        "overflow.toml": "depth = 2\n[[layers]]\ntemperature = 1e-300\n"
        "positional = {kind = 'kerple_power', scale = [1e300], exponent = [2.0]}",
        "cold.toml": "depth = 2\n[[layers]]\ntemperature = 1e-300\n"
        "positional = {kind = 'alibi', slopes = [1e300]}",
        "huge.json": "[1" + "0" * 400 + ", 1, 1]",
        "query.json": '{"profile": [0.25, 0.25, 0.5], "query": "a"}',
        "earlier.json": '{"profile": [0.5, 0.5, 0.0], "query": 1}',
        "cased.toml": ARCHITECTURE.replace("alibi", "ALiBi"),
        "shared.toml": ARCHITECTURE + "num_key_value_heads = 2",
        "wide.toml": ARCHITECTURE + 'mask = {kind = "sliding_window", width = 8, window = 8}',
        "number.toml": ARCHITECTURE.replace('{kind = "constant", value = 0.3}', "0.3"),
        "model/config.json": '{"model_type": "llama"}',
    }
    (tmp_path / "model").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    said = capsys.readouterr()
    assert exit.value.code == 2
    assert said.out == ""
    assert words in said.err
    (line,) = [line for line in said.err.splitlines() if line != COMPILING]
    assert line.startswith("posbias: ")
    assert sorted(tmp_path.iterdir()) == before


def test_a_wrong_file_ends_the_process_with_2(tmp_path):
    done = run("predict", "nowhere.toml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "posbias: nowhere.toml: no such file\n"


def test_debug_shows_where_it_happened(tmp_path):
    done = run("predict", "nowhere.toml", "--debug", cwd=tmp_path, limit_bytes=20_000)
    assert "Traceback" in done.stderr


def test_a_full_disk_leaves_nothing_behind(architecture, tmp_path):
    done = run(
        "predict", architecture, "--tokens", 5000, "--out", tmp_path / "out" / "p.json", limit_bytes=20_000
    )
    assert done.returncode == 2
    assert "p.json: " in done.stderr
    assert "nothing was left there" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_a_full_disk_leaves_the_old_file(architecture, tmp_path):
    target = tmp_path / "p.json"
    assert run("predict", architecture, "--tokens", 5, "--out", target).returncode == 0
    old = target.read_bytes()
    assert run("predict", architecture, "--tokens", 5000, "--out", target, limit_bytes=20_000).returncode == 2
    assert target.read_bytes() == old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.json", "small.toml"]
