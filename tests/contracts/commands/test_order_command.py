"""`posbias order` as a user runs it: hits in, an order and its gain out, wrong lines named."""

import json

import numpy as np
import pytest
from answers import as_json, copies, faults, kept

import posbias
from posbias.cli import main
from posbias.core.errors import InputFileError
from posbias.core.formats import save_json
from posbias.ordering import order
from posbias.ordering.hits import read_hits
from posbias.reports.answers.predictions import Gain

CURVE = [8, 4, 3, 4, 9]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hits(folder, rows, name: str = "hits.jsonl"):
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return name


def ordered_by(capsys, *words):
    main(["order", *words, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert not faults(answer)
    return answer


def test_what_matters_most_goes_where_the_profile_is_highest(here, capsys):
    (here / "curve.json").write_text(json.dumps(CURVE), encoding="utf-8")
    rows = [{"text": "a" * 10, "score": score} for score in (0.1, 0.2, 0.9, 0.3, 0.4)]
    answer = ordered_by(capsys, hits(here, rows), "--profile", "curve.json")
    assert answer["permutation"] == [4, 1, 0, 3, 2]
    assert answer["verdict"] == "not known"
    assert answer["lengths_in"] == "characters"
    main(["order", "hits.jsonl", "--profile", "curve.json", "--out", "ordered.jsonl"])
    # what is not shown to help is not done
    assert (here / "ordered.jsonl").read_text() == (here / "hits.jsonl").read_text()


def test_a_retrieval_orders_and_tells_its_gain(here, capsys):
    import xarray as xr

    from posbias.profiles.measurements import save_retrieval

    random = np.random.default_rng(0)
    drawn = (random.uniform(size=(300, 5)) < np.array(CURVE) / 10).astype(float)
    names = ("accuracy", "choice", "margin", "margin_mean", "control_margin", "control_margin_mean")
    data = dict.fromkeys((*names, "depth", "token", "tokens"), (("prompt", "position"), drawn))
    data["tokens"] = (("prompt", "position"), np.full((300, 5), 160.0))
    for name in ("log_probability", "control_log_probability"):
        data[name] = (("prompt", "position", "candidate"), np.zeros((300, 5, 2)))
    about = {"posbias_kind": "retrieval", "model": "made", "checksum": "0", "job": "{}", "versions": "{}"}
    save_retrieval(xr.Dataset(data, attrs=about), here / "retrieval.nc")
    rows = [{"tokens": 30, "score": score} for score in (1, 1, 8, 1, 1)]
    answer = ordered_by(capsys, hits(here, rows), "--profile", "retrieval.nc", "--out", "ordered.jsonl")
    assert answer["verdict"] == "reorder"
    assert answer["basis"] == "accuracy by place of made, 300 prompts"
    assert answer["unit"] == "in accuracy"
    low, high = answer["gains"]["as given"]["interval"]
    assert 0 < low < 7 / 12 * 0.6 < high
    lines = (here / "ordered.jsonl").read_text().splitlines()
    assert [json.loads(line)["score"] for line in lines][-1] == 8
    # the same of documents ten times as long is not known from it, and not done
    rows = [row | {"tokens": 300} for row in rows]
    answer = ordered_by(capsys, hits(here, rows), "--profile", "retrieval.nc", "--out", "ordered.jsonl")
    assert answer["verdict"] == "not known"
    assert answer["extrapolated"] == ["measured at 160 tokens, these are 1,500"]
    assert answer["prompts_to_tell"] == 300
    lines = (here / "ordered.jsonl").read_text().splitlines()
    assert [json.loads(line)["score"] for line in lines] == [1, 1, 8, 1, 1]


def test_what_was_kept_of_a_model_that_was_asked_orders_with_its_trials(here, capsys):
    curve = copies(np.random.default_rng(0), [0.8, 0.3, 0.3, 0.3, 0.9])
    kept(here / "R", curve)
    profile = posbias.read(here / "R")
    plain = curve.answers.found.mean(axis=0)
    assert profile.mass.tolist() == plain.tolist()
    assert profile.se == pytest.approx(np.sqrt(plain * (1 - plain) / 299), rel=1e-12)
    assert profile.attrs["read_as"] == "retrieval by answers: keys 5 pairs, 300 trials of asked"
    rows = [{"tokens": 26, "score": score} for score in (1, 1, 8, 1, 1)]
    by_path, by_folder = (
        ordered_by(capsys, hits(here, rows), "--profile", name) for name in ("R/retrieval.json", "R")
    )
    assert by_path == by_folder
    assert by_folder["verdict"] == "reorder"
    assert by_folder["basis"] == "accuracy by place of asked, 300 prompts"
    assert by_folder["read_as"] == {"profile": profile.attrs["read_as"]}
    found = order(5, [1, 1, 8, 1, 1], [26.0] * 5, profile=curve.profile())
    assert by_folder["gains"] == {name: as_json(Gain.of(one)) for name, one in found.gains.items()}
    # words are some 1.3 tokens each
    longer = ordered_by(capsys, hits(here, [row | {"tokens": 60} for row in rows]), "--profile", "R")
    assert longer["extrapolated"] == ["measured at 130 tokens, these are 300"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["curves"].append(data["curves"][0]),
        lambda data: data["curves"][0].pop("found"),
        lambda data: data["curves"][0]["found"][1].__setitem__(0, 2),
        lambda data: data.update(schema="retrieve/1"),
    ],
)
def test_what_is_no_curve_is_named(here, change):
    path = kept(here / "R", copies(np.random.default_rng(0), [0.5] * 5))
    damaged = json.loads(path.read_text())
    change(damaged)
    save_json(damaged, path)
    with pytest.raises(InputFileError, match=r"retrieval\.json"):
        posbias.read(path)


def test_a_known_model_comes_along(here, capsys):
    rows = [{"tokens": 30, "score": score} for score in (1, 2, 3, 4, 5, 4, 3, 2, 1, 1)]
    answer = ordered_by(capsys, hits(here, rows), "--profile", "smollm2-135m")
    assert answer["basis"] == "accuracy by place of smollm2-135m, 200 prompts"
    assert answer["loss_at_most"] == 0.0


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (["{"], "line 1"),
        ([], "rows"),
        (['{"tokens": 3}'], "score"),
        (['{"score": 1, "tokens": -3}'], "tokens"),
        (['{"score": 0, "tokens": 3}'], "scores"),
        (['{"score": 1, "tokens": 3}', '{"score": 1}'], "line 2"),
    ],
)
def test_a_wrong_line_is_named(here, capsys, rows, named):
    (here / "hits.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (here / "curve.json").write_text(json.dumps(CURVE), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["order", "hits.jsonl", "--profile", "curve.json"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1


def test_an_unknown_profile_names_the_nearest(here, capsys):
    name = hits(here, [{"tokens": 3, "score": 1}])
    with pytest.raises(SystemExit) as ended:
        main(["order", name, "--profile", "smollm"])
    assert ended.value.code == 2
    assert "'smollm2-135m'" in capsys.readouterr().err


TEXT = "a" * 20
WRITTEN = {
    "llamaindex.jsonl": [
        {"node": {"id_": "0", "text": TEXT, "metadata": {}}, "score": s} for s in (0.9, 0.5)
    ],
    "langchain.jsonl": [{"page_content": TEXT, "metadata": {"relevance_score": s}} for s in (0.9, 0.5)],
    "cohere.json": {
        "id": "x",
        "results": [{"relevance_score": s, "document": {"text": TEXT}} for s in (0.9, 0.5)],
    },
    "pinecone.json": {"matches": [{"id": "0", "score": s, "metadata": {"text": TEXT}} for s in (0.9, 0.5)]},
    "search.json": {
        "hits": {"total": 2, "hits": [{"_score": s, "_source": {"text": TEXT}} for s in (0.9, 0.5)]}
    },
    "plain.csv": f"text,score\n{TEXT},0.9\n{TEXT},0.5\n",
    "bge.jsonl": [{"score": s, "text": TEXT} for s in (-0.3, -4.1)],
    "chroma.jsonl": [{"id": "0", "document": TEXT, "distance": s} for s in (0.1, 0.3)],
    "query.json": {
        "ids": [["0", "1"]],
        "included": ["a", "b"],
        "documents": [[TEXT] * 2],
        "distances": [[0.1, 0.3]],
    },
    "logits.json": [{"logit": s, "text": TEXT} for s in (2.0, 0.0)],
    "alone.jsonl": [{"index": k, "relevance_score": s} for k, s in enumerate((0.9, 0.5))],
}
WEIGHTS = {name: [1, 0.5] for name in ("bge.jsonl", "chroma.jsonl", "query.json")}
WEIGHTS["logits.json"] = [1 / (1 + np.exp(-2)), 0.5]


@pytest.mark.parametrize("name", WRITTEN)
def test_documents_are_read_as_retrievers_write_them(here, capsys, name):
    held = WRITTEN[name]
    lines = "".join(json.dumps(row) + "\n" for row in held) if name.endswith(".jsonl") else json.dumps(held)
    (here / name).write_text(held if isinstance(held, str) else lines, encoding="utf-8")
    found = read_hits(name)
    assert found.scores == pytest.approx(WEIGHTS.get(name, [0.9, 0.5]))
    assert (found.unit, None if found.lengths is None else found.lengths.tolist()) == (
        (None, None) if name == "alone.jsonl" else ("characters", [20.0, 20.0])
    )
    assert bool(found.note) == (name in WEIGHTS)
    (here / f"again-{name}").write_text(found.text([1, 0]), encoding="utf-8")
    assert read_hits(f"again-{name}").scores == pytest.approx(found.scores[::-1])
    (here / "curve.json").write_text(json.dumps(CURVE), encoding="utf-8")
    ordered_by(capsys, name, "--profile", "curve.json")


def test_negative_scores_are_logits_where_that_is_said(here, capsys):
    name = hits(here, [{"tokens": 9, "score": score} for score in (1.0, -1.0)])
    assert read_hits(name).scores.tolist() == [1, 0.5]
    assert read_hits(name, "logit").scores == pytest.approx([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))])
    (here / "curve.csv").write_text("where,ok\n0,1\n1,0\n", encoding="utf-8")
    chosen = ("--profile", "curve.csv", "--columns", "place=where", "score=ok", "--scores", "logit")
    assert "as logits" in ordered_by(capsys, name, *chosen)["scores"]
