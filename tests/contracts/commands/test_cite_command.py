"""`posbias cite` as a user runs it: for every kind of spec and result, and for what is none."""

import json
import re
from pathlib import Path

import pytest
from bibtex import read
from project import ROLLOUT_FILES, needs_rollout_files

from posbias.cli import main
from posbias.errors import InputFileError
from posbias.papers.citations import cite_all
from posbias.papers.citations.methods import MODELS, of_model
from posbias.sources import BIBLIOGRAPHY
from posbias.theory.presets import PRESETS

TRAINED = ("wu2025", "reddy2024", "loshchilov2019", "abnar2020", "gu2025")
"""What every training on the retrieval task rests on."""
SPECS = {
    "rope.toml": (
        "depth = 2\n[[layers]]\n[layers.positional]\nkind = 'rope'\namplitudes = [1.0]\ndimension = 2\n",
        {"abnar2020", "herasimchyk2026", "su2024"},
    ),
    "window.toml": (
        "depth = 2\n[mixing]\nkind = 'attention_only'\n[[layers]]\n[layers.mask]\nkind = 'sliding_window'\n"
        "width = 8\nsinks = 2\n[layers.positional]\nkind = 'kerple_log'\nscale = [1.0]\n",
        {"abnar2020", "wu2025", "beltagy2020", "xiao2024", "chi2022"},
    ),
    "t5.json": (
        json.dumps({"depth": 1, "layers": [{"positional": {"kind": "t5", "biases": [0.0, -1.0]}}]}),
        {"abnar2020", "herasimchyk2026", "raffel2020"},
    ),
    "config.json": (
        json.dumps({"model_type": "bloom", "n_layer": 2, "n_head": 4, "hidden_size": 64}),
        {"abnar2020", "herasimchyk2026", "press2022", "bigscience2022"},
    ),
    "training.toml": (
        "iterations = 10\n[network]\nresidual = true\n[sweep]\nnetwork.positional = ['rope', 'sinusoidal']\n",
        {*TRAINED, "herasimchyk2026", "su2024", "vaswani2017"},
    ),
    "ends.toml": (
        "[task]\nanswers = 'first,last'\n",
        {*TRAINED, "kazemnejad2023"},
    ),
    "study.toml": (
        "question = 'Which norm?'\n[base]\nkind = 'simulate'\n[sweep]\nmodel.norm = ['layernorm', 'rmsnorm']\n",
        {"kim2026", "ba2016", "zhang2019"},
    ),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cited(capsys, *given) -> dict[str, str]:
    """The keys that `posbias cite` prints and the comment above each; posbias's own left out."""
    capsys.readouterr()
    main(["cite", *map(str, given)])
    text = capsys.readouterr().out
    entries = read(text)
    assert entries.pop().key == "posbias"
    keys = [one.key for one in entries]
    # each once, in the order of the bibliography, each below its reason
    assert keys == [key for key in BIBLIOGRAPHY if key in keys]
    reasons = re.findall(r"^% (.+)\n@[a-z]+\{([^,]+),$", text, re.MULTILINE)
    assert [key for _, key in reasons] == [*keys, "posbias"]
    return {key: why for why, key in reasons[:-1]}


def refused(capsys, *given) -> str:
    """The one line that is said of what cannot be cited for."""
    with pytest.raises(SystemExit) as stop:
        main(["cite", *map(str, given)])
    heard = capsys.readouterr()
    assert (stop.value.code, heard.out) == (2, "")
    assert heard.err.count("\n") == 1
    return heard.err


def run(capsys, *words) -> None:
    main([str(word) for word in words])
    capsys.readouterr()


# --- specs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_is_cited_by_what_is_in_it(here, capsys, name):
    text, keys = SPECS[name]
    (here / name).write_text(text)
    assert set(cited(capsys, name)) == keys


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_cited_with_its_model(capsys, name):
    found = cited(capsys, name)
    assert {"abnar2020", "herasimchyk2026"} <= set(found)
    models = {key for key, _ in of_model(name)} & set(found)
    assert models or name.startswith("smollm3")
    if "ALiBi" in type(PRESETS[name].positional).__name__:
        assert "press2022" in found


def test_names_that_begin_alike_are_told_apart():
    assert dict(of_model("google/gemma-2-9b")) == dict([MODELS["gemma-2"]])
    assert dict(of_model("/models/mpt-7b")) == dict([MODELS["mpt-7b"]])
    for other in ("gemma-2b", "bloomz-7b1", "gpt2000", "falcon-7b", "mpt-7bx"):
        assert not dict(of_model(other)), other


@needs_rollout_files
def test_a_rollout_file_is_cited_as_the_authors(capsys):
    found = cited(capsys, ROLLOUT_FILES / "mpt-7b-content.yaml")
    assert {"herasimchyk2026", "abnar2020", "press2022", "mosaic2023a"} == set(found)
    assert "the authors' rollout file" in found["herasimchyk2026"]


def test_a_papers_study_is_cited_by_name(capsys):
    found = cited(capsys, "wu2025/fig3")
    assert {"wu2025", "reddy2024", "liu2024", "kazemnejad2023", "su2024", "vaswani2017"} <= set(found)
    assert "wu2025/fig3" in found["wu2025"]
    assert {"wu2025", "gu2025", "xiao2024"} <= set(cited(capsys, "wu2025/fig10"))
    assert {"herasimchyk2026", "simonyan2014", "bigscience2022"} <= set(
        cited(capsys, "herasimchyk2026/table2")
    )
    assert set(cited(capsys, "kim2026/fig1")) == {"kim2026", "ba2016"}
    assert {"wu2025", "reddy2024", "gu2025"} <= set(cited(capsys, "wu2025"))


def test_another_version_of_a_paper_is_cited_with_it_and_by_its_key(capsys):
    for given in ("wu2025", "wu2025workshop"):
        assert "version of wu2025" in cited(capsys, given)["wu2025workshop"]
    assert "wu2025workshop" not in cited(capsys, "wu2025/fig2")
    assert set(cited(capsys, "wu2025workshop")) == {"wu2025workshop"}
    assert set(cited(capsys, "press2022")) == {"press2022"}


def test_several_are_one_bibliography_in_one_order(here, capsys):
    for name, (text, _) in SPECS.items():
        (here / name).write_text(text)
    names = [*SPECS, "wu2025/fig10"]
    found = cited(capsys, *names)
    assert found.keys() >= set().union(*(keys for _, keys in SPECS.values()))
    assert list(found) == list(cited(capsys, *reversed(names)))


def test_json_has_the_entries_with_their_reasons(here, capsys):
    main(["cite", "mpt-7b", "--json"])
    answer = json.loads(capsys.readouterr().out)
    (model,) = (one for one in answer["sources"] if one["key"] == "mosaic2023a")
    assert model["why"] == ["MPT-7B"]
    assert model["bibtex"] == BIBLIOGRAPHY["mosaic2023a"].bibtex
    assert read(answer["software"]["bibtex"])[0].fields["version"] == answer["software"]["version"]


# --- results -----------------------------------------------------------------------------------------------


def test_computed_results_are_cited_by_what_made_them(here, capsys):
    run(capsys, "predict", "bloom-560m", "--tokens", 32, "--mixing", "abnar-zuidema", "--out", "p.json")
    assert set(cited(capsys, "p.json")) == {"abnar2020", "press2022", "bigscience2022"}
    run(capsys, "predict", "gpt2", "--vary", "depth=12,24", "--tokens", 16, "--out", "v.json")
    assert {"herasimchyk2026", "radford2019"} <= set(cited(capsys, "v.json"))
    run(capsys, "simulate", "layernorm", "--effort", 500, "--norm", "rmsnorm", "--out", "s.json")
    assert set(cited(capsys, "s.json")) == {"kim2026", "zhang2019"}
    run(capsys, "simulate", "variants", "rope", "--networks", 2, "--inputs", 2, "--out", "w.json")
    assert set(cited(capsys, "w.json")) == {"kim2026", "ba2016", "su2024"}
    run(capsys, "verify", "wu-4.1", "kim-section-3", "--effort", 4, "--out", "verified")
    found = cited(capsys, "verified/verify.json")
    assert set(found) == {"wu2025", "kim2026"}
    assert "Theorem 4.1" in found["wu2025"]


def test_a_trained_cell_is_cited_from_each_of_its_files(here, capsys):
    tiny = (
        "--items 4 --dimension 16 --classes 64 --labels 4 --burstiness 2 --networks 2 --batch 16 --effort 10"
    )
    main(["train", *tiny.split(), "--sequences", "20", "--positional", "rope", "--out", "cell", "--json"])
    Path("answer.json").write_text(capsys.readouterr().out)
    keys = {*TRAINED, "su2024"}
    (arrays,), (weights,) = Path("cell").glob("*.nc"), Path("cell").glob("*.safetensors")
    for given in (arrays, weights, "answer.json", "cell"):
        assert set(cited(capsys, given)) == keys


@pytest.mark.slow
def test_a_measurement_and_what_is_made_of_it(here, capsys):
    run(
        capsys,
        "measure",
        "tiny-alibi",
        "--tokens",
        16,
        "--prompts",
        2,
        "--rollouts",
        "kernel",
        "--out",
        "m.nc",
    )
    keys = {"herasimchyk2026", "simonyan2014", "gu2025", "xiao2024", "abnar2020", "press2022"}
    assert set(cited(capsys, "m.nc")) == keys
    words = ("--models", "m.nc", "--tokens", 16, "--out", "results/herasimchyk2026")
    run(capsys, "paper", "herasimchyk2026", "table1", *words)
    for name in ("table1.json", "table1.md"):
        found = cited(capsys, Path("results/herasimchyk2026") / name)
        assert {"herasimchyk2026", "press2022", "bigscience2022"} <= set(found)
    run(capsys, "report", "m.nc", "--out", "reported")
    (here / "reported" / "m.nc").write_bytes((here / "m.nc").read_bytes())
    assert "the predictor without residual connections" in cited(capsys, "reported")["wu2025"]


def test_a_study_is_cited_by_its_cells(here, capsys):
    text, keys = SPECS["study.toml"]
    (here / "norms.toml").write_text(text.replace("kind = 'simulate'", "kind = 'simulate'\nsamples = 200"))
    run(capsys, "study", "run", "norms.toml", "--out", "norms")
    assert set(cited(capsys, "norms")) == set(cited(capsys, "norms/study.json")) == keys
    cells = sorted((here / "norms" / "cells").glob("*.json"))
    assert [set(cited(capsys, one)) - {"kim2026"} for one in cells] in ([{"ba2016"}, {"zhang2019"}],)


# --- what is none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.toml",
            "dpeth = 3\n",
            r"a\.toml: of no known kind \(keys dpeth\), .* needed; did you mean 'depth'",
        ),
        ("a.json", "[1, 2]", r"a\.json: holds list, keys with values needed"),
        ("a.json", "{", r"a\.json: not valid JSON"),
        ("a.json", "{}", r"a\.json: of no known kind \(keys none\)"),
        ("a.toml", "depth = 0\n", r"a\.toml: depth: 0 given, a number ≥ 1 needed"),
        ("a.toml", "seeds = 5\n", r"a\.toml: seeds: 5 given, a list of integers from 0"),
        ("a.json", '{"statements": [{"source": "nobody2020"}]}', r"a\.json: statements of no known paper"),
        ("a.json", '{"variants": 3}', r"a\.json: damaged"),
        ("a.nc", "text", r"a\.nc: not a readable NetCDF file"),
        ("a.safetensors", "text", r"a\.safetensors: damaged, not safetensors"),
        ("a.md", "# A page\n", r"a\.md: no page of a paper's figure or table"),
        ("a.txt", "", r"a\.txt: suffix '\.txt' given, one of \.toml, .* or a folder needed"),
    ],
)
def test_what_is_of_no_known_kind_is_said_in_a_line(here, capsys, name, content, message):
    (here / name).write_text(content)
    assert re.search(message, refused(capsys, name))


@pytest.mark.parametrize(
    ("name", "near"),
    [("modle.toml", "model.toml"), ("blom-176b", "bloom-176b"), ("wu2025/fig99", "wu2025/fig9")],
)
def test_what_is_missing_is_said_with_the_nearest(here, capsys, name, near):
    (here / "model.toml").write_text("depth = 2\n")
    assert re.search(rf"{name}: no such file, .*; did you mean '{near}'\?", refused(capsys, name))


@pytest.mark.parametrize("claims", ["[1, 2]", '["paper"]', "[null]", '[["paper"]]'])
def test_claims_that_are_no_tables_are_refused(tmp_path, claims):
    path = tmp_path / "claims.json"
    path.write_text(f'{{"claims": {claims}}}')
    with pytest.raises(InputFileError, match=r"claims\.json"):
        cite_all([str(path)])


def test_nothing_and_an_empty_folder_are_refused(here, capsys):
    assert "nothing given" in refused(capsys)
    (here / "empty").mkdir()
    assert "empty: a folder without results" in refused(capsys, "empty")


def test_one_bad_input_prints_nothing_of_the_good_ones(here, capsys):
    assert "gone.json: no such file" in refused(capsys, "bloom-560m", "gone.json")


def test_statements_tried_are_cited_by_their_papers(here, capsys):
    run(capsys, "paper", "claims", "--paper", "kim2026/statements", "--instances", "1", "--workers", "1")
    for place in ("results", "results/statements", next(Path("results/statements").iterdir())):
        assert cited(capsys, place) == {"kim2026": "numbered statements, tried on random instances"}
