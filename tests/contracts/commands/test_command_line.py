"""The commands as a user runs them: real files, what they print and how they end; full disks in processes."""

import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import called

from posbias.cli import main
from posbias.cli.output import COMPILING
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
    done = run("predict", config, "--mixing", "abnar-zuidema", "--json")
    assert "no λ was given" not in done.stderr
    assert json.loads(done.stdout)["exact"] is False


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
    assert "1/(distance + 1)" in table


@pytest.mark.parametrize(
    "suffix", ["svg", *(pytest.param(one, marks=pytest.mark.slow) for one in ("png", "pdf"))]
)
def test_predict_draws(architecture, tmp_path, suffix):
    picture = tmp_path / f"profile.{suffix}"
    assert run("predict", architecture, "--plot", picture).returncode == 0
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert picture.read_bytes().startswith(start)


BAD = """
predict nowhere.toml | nowhere.toml
predict small.tml | small.toml
predict broken.yaml | broken.yaml
predict unknown.toml | depth
predict lambda.toml | mixing.value
predict slopes.json | slopes
predict small.toml --tokens 0 | tokens
predict small.toml --tokens 9000000000000 | that takes about
predict small.toml --tokens many | --tokens
predict small.toml --tokens 2.5 | --tokens
predict small.toml --tokens 32 --tokens 64 | --tokens
predict small.toml --query 256 | query
predict small.toml --query 1.5 | --query
predict small.toml --mixing nan | mixing
predict small.toml --mixing atention_only | 'attention_only'
predict small.toml --plot p.bmpp | svg, png, pdf
predict small.toml --tokns 4 | --tokns
preditc small.toml | "predict"
predict small.toml --out /dev/full | /dev/full
predict small.toml --out . | folder
predict small.toml --vary dept=1:4 | 'depth'
predict small.toml --vary depth=1:4 --depth-trajectory | depth_trajectory
predict small.toml --vary depth=0:5 | depth
predict small.toml --method swep | 'sweep'
predict small.toml --rule both | --calibrate
predict small.toml --critical-distance | critical_distance
predict twice.yaml | 'depth'
predict deep.json | nested
predict many.toml | depth
predict empty.yaml | empty.yaml
predict broken.nc | broken.nc
predict curve.png | curve.png
predict | architecture
predict blom-176b | 'bloom-176b'
predict cased.toml | 'alibi'
predict prefix.toml | prefix
predict overflow.toml | positional
compare list.json | q
compare list.json words.json | words.json
compare list.json longer.json | 4
compare list.json negative.json | negative.json
compare list.json broken.nc | broken.nc
compare bloom-176b list.json | architecture
compare small.toml list.json | small.toml
compare model list.json | model
compare list.json tiny-rope | posbias predict tiny-rope
compare list.jsom list.json | 'list.json'
compare list.json query.json | query
measure --out m.txt | out
measure --tokens 0 | tokens
measure --prompts 0 | prompts
measure --text none.txt | none.txt
measure --out small.toml/m.nc | small.toml
measure --target x | target
measure '' | model
report --out r.nc | out
report broken.nc --tokens 99 | tokens
models --rerun | --fetch
verify wu-4.9 | statement
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_bad_input_is_one_clear_line(architecture, tmp_path, line, capsys, monkeypatch):
    """In this process: sixty of them would start for two minutes."""
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
        "deep.json": "[" * 100_000,
        "many.toml": "depth = 1000000000",
        "empty.yaml": "",
        "prefix.toml": "depth = 2\n[[layers]]\nmask = {kind = 'prefix', length = 300}",
        "overflow.toml": "depth = 2\n[[layers]]\ntemperature = 1e-300\n"
        "positional = {kind = 'kerple_power', scale = [1e300], exponent = [2.0]}",
        "query.json": '{"profile": [0.25, 0.25, 0.5], "query": "a"}',
        "cased.toml": ARCHITECTURE.replace("alibi", "ALiBi"),
        "model/config.json": '{"model_type": "llama"}',
    }
    arguments, named = line.split(" | ")
    (tmp_path / "model").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main(shlex.split(arguments))
    said = capsys.readouterr()
    assert exit.value.code == 2
    assert said.out == ""
    assert named in said.err
    (words,) = [one for one in said.err.splitlines() if one != COMPILING]
    assert words.startswith("posbias: ")
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
