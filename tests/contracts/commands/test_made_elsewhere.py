"""Results made elsewhere as a user gives them to commands: taken, named in a line, refused in one."""

import csv
import html
import json
from dataclasses import replace

import numpy as np
import pytest
from answers import copies, faults, kept
from project import ROOT

import posbias
from posbias.cli import main
from posbias.core.errors import InputFileError
from posbias.reports.answers.retrievals import AnswerCurve
from posbias.reports.plots import new_figure
from posbias.reports.plots.influence import draw_band
from posbias.retrieval import ask, retrieval_job

HERE = ROOT / "tests" / "elsewhere"
FILES = (
    "needle",
    "liu_kv",
    "ruler_niah_multikey.jsonl",
    "samples_posbias_lists.jsonl",
    "inseq_saliency.json",
)
MEAN = ("--tokens", "all")
"""Of needles, the mean over context lengths; the others have one length."""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answered(capsys, *words):
    main([*map(str, words), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert not faults(answer)
    return answer


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_compared_ordered_by_and_reported(capsys, here, name):
    (here / "hits.jsonl").write_text('{"score": 0.2, "tokens": 9}\n{"score": 0.7, "tokens": 9}\n')
    answers = [
        answered(capsys, "compare", HERE / name, HERE / "liu_kv", "--by-share", "--plot", "a.svg", *MEAN),
        answered(capsys, "order", "hits.jsonl", "--profile", HERE / name, *MEAN),
        answered(capsys, "report", HERE / name, "--out", "page", *MEAN),
    ]
    assert (here / "a.svg").is_file()
    for answer, key in zip(answers, ("p", "profile", "source"), strict=True):
        assert ": " in answer["read_as"][key]
    claims = answers[-1]["claims"]
    assert [claim["id"] for claim in claims] == [
        "elsewhere/first-above-middle",
        "elsewhere/last-above-middle",
    ]
    assert all(claim["scope"] == answers[-1]["read_as"]["source"] for claim in claims)
    page = (here / "page" / "report.html").read_text()
    assert html.escape(answers[-1]["read_as"]["source"]) in page
    rows = list(csv.reader((here / "page" / "profile.csv").read_text().splitlines()))
    profile = posbias.read(HERE / name, tokens="all")
    assert [float(row[1]) for row in rows[1:]] == pytest.approx(profile.mass, rel=1e-5, abs=1e-12)
    assert "95 % low" in rows[0]
    for place in (0, -1):
        gap = profile.samples[:, place] - profile.samples[:, 1:-1].mean(axis=1)
        if profile.kind == "rate" and len(gap) > 1:
            assert (
                f"middle: {gap.mean():+.3f} in {profile.measures} (95 % interval" in answers[-1]["answer"][1]
            )


def test_a_retrieval_of_ours_is_reported_by_file_and_by_folder(capsys, here):
    """Of a model that was asked; its answers are at chance, which the page says."""
    kept(here / "R", copies(np.random.default_rng(0), [0.0] * 5))
    one, other = (answered(capsys, "report", name, "--out", "page") for name in ("R/retrieval.json", "R"))
    assert one == other
    assert one["read_as"]["source"].startswith("retrieval by answers: ")
    assert "300 trials" in one["answer"][1]
    assert "guesses" in one["answer"][1]


@pytest.mark.parametrize("seed", [0, 1])
def test_two_retrievals_are_compared_trial_by_trial_where_these_are_the_same(capsys, here, seed):
    """One finds the first place and the last, the other all of them; the other seed has other trials."""
    random = np.random.default_rng(0)
    ends, everywhere = copies(random, [0.9, 0.1, 0.1, 0.1, 0.9]), copies(random, [0.9] * 5)
    everywhere = replace(everywhere, job=everywhere.job | {"seed": seed})
    kept(here / "ends", ends)
    kept(here / "all", everywhere)
    between = answered(capsys, "compare", "ends", "all", "--plot", "two.svg")["between"]
    assert (between["way"], between["against"], between["paired"]) == ("ends", "all", seed == 0)
    assert between["verdict"] == "changes the bias"
    gaps = between["differences"]
    assert gaps["mean"]["value"] == pytest.approx(ends.answers.found.mean() - everywhere.answers.found.mean())
    assert gaps["first - middle"]["interval"][0] > 0.5
    main(["compare", "ends", "all"])
    said = capsys.readouterr().out
    row = next(line for line in said.splitlines() if line.startswith("0 "))
    assert row.count("[") == 2
    assert "Wasserstein" not in (here / "two.svg").read_text()
    kept(here / "none", copies(random, [0.0] * 5))
    assert answered(capsys, "compare", "none", "all")["between"]["at_chance"] == ["none"]


def test_an_order_by_ones_own_documents_has_no_warning(capsys, here):
    curve = copies(np.random.default_rng(0), [0.8, 0.3, 0.3, 0.3, 0.9])
    job = curve.job | {"task": "documents", "pairs": None, "documents": [5, 5]}
    kept(here / "R", replace(curve, job=job))
    (here / "hits.jsonl").write_text('{"score": 0.2, "tokens": 26}\n' * 5)
    assert answered(capsys, "order", "hits.jsonl", "--profile", "R")["warnings"] == []


def test_a_curve_of_a_function_is_written_and_used(capsys, here):
    """As a dictionary in JSON; the answers that it kept are no results, and say what makes some of them."""
    curve = ask(lambda prompt: prompt, retrieval_job("keys", pairs=5, prompts=6), answers="answers.jsonl")
    (here / "curve.json").write_text(AnswerCurve.of(curve).model_dump_json())
    profile = posbias.read("curve.json")
    assert profile.mass.tolist() == curve.profile().mass.tolist()
    assert profile.attrs["job"] == curve.profile().attrs["job"]
    (here / "hits.jsonl").write_text('{"score": 0.2, "tokens": 26}\n' * 5)
    order = answered(capsys, "order", "hits.jsonl", "--profile", "curve.json")
    assert order["basis"] == "accuracy by place of the generator, 6 prompts"
    with pytest.raises(InputFileError, match=r"`posbias retrieve --answers answers\.jsonl` makes"):
        posbias.read("answers.jsonl")


def test_intervals_of_places_that_are_always_right_have_a_width(capsys, here):
    """As wide as twenty trials that agree leave them; the same in the table and in the picture."""
    rows = np.tile([1.0, 0.0, 0.5, 1.0, 0.0], (20, 1))
    rows[::2, 2], rows[1::2, 2] = 0, 1
    (here / "mine.csv").write_text(
        "question_id,gold_position,correct\n"
        + "".join(f"{k},{place},{right:g}\n" for k, row in enumerate(rows) for place, right in enumerate(row))
    )
    answered(capsys, "report", "mine.csv", "--out", "page")
    table = list(csv.reader((here / "page" / "profile.csv").read_text().splitlines()))[1:]
    ends = [tuple(map(float, row[2:])) for row in table]
    most = 1 - 0.05 ** (1 / 20)
    assert ends[0] == ends[3] == pytest.approx((1 - most, 1), abs=1e-5)
    assert ends[1] == ends[4] == pytest.approx((0, most), abs=1e-5)
    band = new_figure().subplots()
    draw_band(band, posbias.read("mine.csv"), "black", 0.5)
    corners = band.collections[0].get_paths()[0].vertices
    assert {round(y, 5) for x, y in corners if x == 0} == {round(1 - most, 5), 1}


def test_a_prediction_of_ours_and_a_file_that_is_not_there(capsys, here):
    main(["predict", "tiny-alibi", "--tokens", "12", "--out", "p.json"])
    capsys.readouterr()
    shows, sure, expected, _ = answered(capsys, "report", "p.json")["answer"]
    assert "the last 1 of 12 positions" in shows
    assert "not known" in sure
    assert "not measured" in expected
    for name in ("retrieval.json", "scores.csv"):
        with pytest.raises(SystemExit):
            main(["report", name])
        assert f"{name}: no such file" in capsys.readouterr().err


def test_differences_that_are_all_alike_decide_nothing(capsys, here):
    kept(here / "R", copies(np.random.default_rng(0), [1.0, 0.0, 0.0, 0.0, 1.0]))
    claims = answered(capsys, "report", "R")["claims"]
    assert [claim["verdict"] for claim in claims] == ["undecided", "undecided"]
    assert "in all 300 samples" in claims[0]["why"]


def test_attributions_against_a_prediction_are_divided_by_it(capsys, here):
    main(["predict", "tiny-alibi", "--tokens", "12", "--out", "p.json"])
    capsys.readouterr()
    answer = answered(capsys, "compare", HERE / "inseq_saliency.json", "p.json")
    assert answer["beyond_position"] is not None
    main(["compare", str(HERE / "inseq_saliency.json"), "p.json"])
    assert "relative to what position predicts" in capsys.readouterr().out
    assert answered(capsys, "compare", "p.json", "p.json")["beyond_position"] is None


@pytest.mark.parametrize("words", [("compare", "FILE", "FILE"), ("report", "FILE")])
def test_unknown_columns_end_with_exit_code_2_and_a_line_that_names_them(capsys, here, words):
    (here / "mine.csv").write_text("where,ok\n0,1\n")
    with pytest.raises(SystemExit) as ended:
        main([word.replace("FILE", "mine.csv") for word in words])
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "its columns are where, ok; name them: --columns place=COLUMN" in said


def test_columns_and_lengths_count_where_a_file_has_them_and_are_refused_where_none_can(capsys, here):
    rows = [f"{place},{4 - place},{n}" for n in (4000, 8000) for place in range(4)]
    (here / "mine.csv").write_text("\n".join(["where,ok,context_length", *rows]))
    named = ("--columns", "place=where", "score=ok", "scale=0-10", "--tokens", "8k")
    answer = answered(capsys, "compare", "mine.csv", HERE / "liu_kv", *named)
    assert answer["read_as"]["q"].startswith("lost-in-the-middle")
    assert "8,000 tokens of 4,000, 8,000" in answer["read_as"]["p"]
    (here / "hits.jsonl").write_text('{"score": 0.2, "tokens": 9}\n')
    for words in (
        ("order", "hits.jsonl", "--profile", "smollm2-135m", "--tokens", "8k"),
        ("report", str(HERE / "liu_kv"), "--tokens", "8k"),
        ("report", "tiny-alibi", "--columns", "place=where"),
        ("report", "mine.csv", "--columns", "where"),
        ("report", "mine.csv", "--columns", "wher=where"),
        ("report", "mine.csv", "--columns", "place=where", "score=ok", "--tokens", "16k"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        assert ended.value.code == 2
        assert "expected" in capsys.readouterr().err.splitlines()[-1]


def test_every_context_length_has_a_page_of_its_own(capsys, here):
    answer = answered(capsys, "report", HERE / "needle", "--out", "pages")
    assert [one["page"] for one in answer["lengths"]] == [
        f"pages/{length}-tokens/report.html" for length in (1000, 200000)
    ]
    assert answer["page"] == answer["lengths"][0]["page"]
    one = answered(capsys, "report", HERE / "needle", "--tokens", "200k", "--out", "page")
    assert one["claims"] == answer["lengths"][1]["claims"]
    (here / "mine.csv").write_text("where,ok,of\n0,9,10\n1,4,10\n2,10,10\n")
    named = ("--columns", "place=where", "score=ok", "total=of")
    answered(capsys, "report", "mine.csv", "--out", "mine", *named)
    rows = list(csv.reader((here / "mine" / "profile.csv").read_text().splitlines()))[1:]
    # statsmodels.stats.proportion.proportion_confint(4, 10, method="wilson")
    assert [float(cell) for cell in rows[1]] == pytest.approx([1, 0.4, 0.168180, 0.687326], abs=1e-6)
