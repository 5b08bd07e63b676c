"""Use: documents in order, adapters, designs, the explore page."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from command import called
from readers import rates

import posbias

BASE = """
depth = 4
mixing = {kind = "constant", value = 0.3}
layers = [{heads = 2, positional = {kind = "alibi"}}]
"""


def test_the_best_order_of_documents():
    """The likeliest document to the best place: here the last, then the first."""
    ordering = posbias.order(3, [0.1, 0.6, 0.3], profile=rates([0.7, 0.4, 0.9], 400))
    assert [*ordering.permutation] == [2, 0, 1]


def test_hits_of_a_retriever_in_order(answered):
    hits = [
        {"page_content": "a" * 90, "metadata": {"relevance_score": score}}
        for score in (0.9, 0.5, 0.3, 0.2, 0.1)
    ]
    Path("hits.jsonl").write_text("".join(json.dumps(hit) + "\n" for hit in hits))
    Path("curve.csv").write_text(
        "position,correct,n\n"
        + "\n".join(f"{place},{right},200" for place, right in enumerate((150, 90, 80, 90, 190)))
    )
    answer = answered(
        "order", "hits.jsonl", "--profile", "curve.csv", "--scores", "score", "--out", "o.jsonl"
    )
    written = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    assert written == [hits[place] for place in answer["recommended"]]
    assert answer["recommended"][-1] == 0


def test_an_order_is_never_written_that_is_worse_than_a_usual_one(answered):
    Path("hits.csv").write_text("score,tokens\n.9,100\n.5,100\n.3,100\n")
    Path("flat.csv").write_text("position,correct,n\n0,10,20\n1,10,20\n2,10,20\n")
    answer = answered("order", "hits.csv", "--profile", "flat.csv", "--out", "o.csv")
    assert answer["recommended"] == [0, 1, 2]


def test_an_adapter():
    """`tests/adapters` has LangChain, LlamaIndex and Haystack, in an environment of their own."""
    documents = pytest.importorskip("langchain_core.documents")
    from posbias.ordering.adapters.langchain import PositionBiasReorder

    hits = [documents.Document("a" * 40, metadata={"relevance_score": score}) for score in (0.1, 0.6, 0.3)]
    got = PositionBiasReorder(profile=rates([0.7, 0.4, 0.9], 400)).transform_documents(hits)
    assert [one.metadata["relevance_score"] for one in got] == [0.3, 0.1, 0.6]


def test_a_design_front(answered):
    Path("base.toml").write_text(BASE)
    answer = answered(
        *("design", "base.toml", "--tokens", 64, "--vary", "window=8,16,32", "--vary", "depth=2,4"),
        *("--out", "found"),
    )
    assert answer["looked_at"] == 6
    distances, caches = ([one[key] for one in answer["front"]] for key in ("distance", "cache"))
    assert [sorted(distances), sorted(caches, reverse=True)] == [distances, caches]
    first = tomllib.loads(Path("found", answer["front"][0]["file"]).read_text())
    assert first["depth"] in (2, 4)


def test_a_design_for_a_reach():
    found = posbias.design(
        posbias.Architecture(4, mixing=posbias.ConstantMixing(0.3)),
        {"window": [4, 8, 64]},
        target="reach=40",
        tokens=64,
    )
    assert {one.values["window"] for one in found.front if one.reach >= 40} == {64}


def test_the_explore_page(answered, folder):
    answer = answered("explore", "bloom-560m", "--no-open", "--out", "page.html")
    assert answer["begins_from"] == "bloom-560m"
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert len(page) > 50_000


def test_a_picture_of_a_profile(folder):
    done = called("predict", "bloom-560m", "--tokens", 32, "--plot", "bloom.png", cwd=folder)
    assert done.returncode == 0
    assert (folder / "bloom.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_in_one_line(folder):
    profiles = {name: posbias.predict(posbias.preset(name), 64) for name in ("bloom-560m", "mpt-7b")}
    ax = posbias.plot(profiles, size=(3.4, 2.4), out="fig.pdf")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 64 * profiles["bloom-560m"].mass)
    assert Path("fig.pdf").read_bytes().startswith(b"%PDF")
