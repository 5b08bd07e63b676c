"""Results made elsewhere: real files give what a plain loop over them gives; hostile ones are refused."""

import gzip
import io
import json
import math
import zipfile
from base64 import b64decode
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from safetensors.numpy import load, save_file
from scipy.stats import t

import posbias
from posbias.comparison.differences import prior_normalised, residuals
from posbias.core.errors import InputFileError
from posbias.imports import read_curves
from posbias.imports.columns import Answers, Choice, rates
from posbias.profiles.profile import Profile

HERE = Path(__file__).parents[1] / "elsewhere"
SIGNED = ("inseq_saliency.json", "inseq_integrated_gradients.json")
RATES = ("needle", "liu_kv", "ruler_niah_multikey.jsonl", "samples_posbias_lists.jsonl")


def lines(name):
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


def means(pairs):
    """The mean score by place, in the order of places."""
    found = defaultdict(list)
    for place, score in pairs:
        found[place].append(score)
    return [sum(found[place]) / len(found[place]) for place in sorted(found)]


@pytest.mark.parametrize("name", [*RATES, *SIGNED])
def test_real_files_become_rates_or_signed_numbers_with_an_error(name):
    profile = posbias.read(HERE / name, tokens="all" if name in RATES else None)
    assert (profile.kind, len(profile.samples) > 1) == ("rate" if name in RATES else "signed", True)
    spread = profile.samples.std(axis=0, ddof=1) / math.sqrt(len(profile.samples))
    np.testing.assert_allclose(profile.samples.mean(axis=0), profile.mass, rtol=0, atol=1e-12)
    np.testing.assert_allclose(profile.se, spread, rtol=0, atol=1e-12)
    assert profile.attrs["read_as"].startswith(profile.attrs["format"])
    assert "\n" not in profile.attrs["read_as"]


def test_a_needle_run_has_a_curve_for_each_context_length():
    rows = [json.loads(path.read_text()) for path in (HERE / "needle").iterdir()]
    curves = read_curves(HERE / "needle")
    assert list(curves) == [1000.0, 200000.0]
    for length, profile in curves.items():
        own = [row for row in rows if row["context_length"] == length]
        assert profile.mass.tolist() == means((row["depth_percent"], (row["score"] - 1) / 9) for row in own)
    mean = posbias.read(HERE / "needle", tokens="all")
    assert mean.mass.tolist() == means((row["depth_percent"], (row["score"] - 1) / 9) for row in rows)
    assert mean.name == "claude-2.1"
    assert mean.at.tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(InputFileError):
        posbias.read(HERE / "needle")


def test_key_value_answers_are_found_at_the_place_in_the_prompt():
    rows = [row for path in (HERE / "liu_kv").iterdir() for row in lines(path.relative_to(HERE))]
    # the place is read off the prompt: a way of its own
    pairs = [
        (row["model_prompt"].index(f'"{row["key"]}": "'), row["value"], row["model_answer"], row)
        for row in rows
    ]
    places = [row["model_prompt"][:at].count('": "') for at, *_, row in pairs]
    found = means(
        (place, float(value in answer)) for place, (_, value, answer, _) in zip(places, pairs, strict=True)
    )
    profile = posbias.read(HERE / "liu_kv")
    assert profile.mass.tolist() == found
    assert profile.at.tolist() == [0.0, 3.0, 6.0, 9.0]
    assert profile.places.rows == "trials"


def test_answers_to_questions_are_scored_by_normalised_substrings_of_the_first_line(tmp_path):
    def row(gold, answer):
        documents = [{"title": "t", "text": "x", "isgold": place == gold} for place in range(3)]
        about = {"question": "who?", "answers": ["The Grand Canal!", "Venice"], "model": "m"}
        return json.dumps(about | {"model_documents": documents, "model_answer": answer})

    rows = [row(0, "it is a grand canal."), row(1, "no\nGrand Canal"), row(2, "VENICE, surely")]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    assert posbias.read(tmp_path / "a.jsonl").mass.tolist() == [1.0, 0.0, 1.0]


def test_ruler_answers_are_placed_where_they_stand_in_the_input():
    rows = lines("ruler_niah_multikey.jsonl")
    profile = posbias.read(HERE / "ruler_niah_multikey.jsonl")
    places = [int(profile.tokens * row["input"].index(row["outputs"][0]) / len(row["input"])) for row in rows]
    found = means(
        (place, float(row["outputs"][0] in row["pred"])) for place, row in zip(places, rows, strict=True)
    )
    assert profile.mass == pytest.approx(found, abs=1e-12)


def test_harness_samples_are_placed_by_their_documents_or_else_by_the_target(tmp_path):
    rows = lines("samples_posbias_lists.jsonl")
    found = means((row["doc"]["position"], row["exact_match"]) for row in rows)
    assert posbias.read(HERE / "samples_posbias_lists.jsonl").mass.tolist() == pytest.approx(found, abs=1e-12)
    for row in rows:
        del row["doc"]["position"]
    (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, rows)))
    profile = posbias.read(tmp_path / "samples.jsonl")
    # the lists end with the question, which leaves the last places a little earlier
    assert profile.mass == pytest.approx(found, abs=1e-12)
    (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, [*rows, rows[0] | {"target": []}])))
    more = posbias.read(tmp_path / "samples.jsonl")
    assert more.mass.tolist() == profile.mass.tolist()
    assert "1 left out whose answer" in more.attrs["read_as"]


def test_attributions_of_inseq_are_those_of_the_first_token(tmp_path):
    profile = posbias.read(HERE / "inseq_saliency.json")
    data = json.loads((HERE / "inseq_saliency.json").read_text())
    sequence = data["attributes"]["sequence_attributions"][0]["attributes"]
    attributed = load(b64decode(sequence["target_attributions"]))["attribution"]
    row = attributed[: sequence["attr_pos_start"], 0].astype(np.float64)
    expected = Profile(row, kind="signed").by_share(profile.tokens).mass
    assert profile.samples[0] == pytest.approx(expected, rel=1e-12)
    save_file({"attributions": np.stack([row, -row])}, tmp_path / "a.safetensors")
    assert posbias.read(tmp_path / "a.safetensors").samples.tolist() == [row.tolist(), (-row).tolist()]


@given(st.integers(2, 5), st.integers(3, 6), st.data())
def test_rates_are_means_of_trials_or_of_groups(trials, places, data):
    """Answers of a trial at a place are averaged; the curve is the mean over cells, groups are equal parts."""
    scores = st.sampled_from([0.0, 0.25, 1.0])
    cells = [(trial, place) for trial in range(trials) for place in range(places)]
    some = st.lists(st.sampled_from(cells), min_size=1)
    kept = data.draw(some) if data.draw(st.booleans()) else cells + data.draw(some)
    answers = pd.DataFrame(
        [(trial, float(place), data.draw(scores)) for trial, place in kept],
        columns=["trial", "place", "score"],
    )
    by_cell = defaultdict(list)
    for trial, place, score in answers.itertuples(index=False):
        by_cell[trial, place].append(score)
    shown = sorted({place for _, place in by_cell})
    if len(shown) < 2:
        with pytest.raises(InputFileError, match="two places or more"):
            rates(answers, "file", Answers(answers, "", ""))
        return
    profile = rates(answers, "file", Answers(answers, "", ""))
    assert profile.mass == pytest.approx(
        means((place, float(np.mean(held))) for (_, place), held in by_cell.items()), abs=1e-12
    )
    complete = len(by_cell) == len({trial for trial, _ in by_cell}) * len(shown)
    assert profile.places.rows == ("trials" if complete else "groups of answers")
    assert len(profile.samples) == min(sum(place == one for _, place in by_cell) for one in shown)
    if complete:
        order = dict.fromkeys(trial for trial, _ in by_cell)
        rows = [[np.mean(by_cell[trial, place]) for place in shown] for trial in order]
        assert profile.samples == pytest.approx(np.array(rows), abs=1e-12)


CASES = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))


def laid_out(folder, files):
    """Write the files of a case (CSV as lines, JSON lines as objects, JSON as it is or as text)."""
    for name, held in files.items():
        kind = name.removesuffix(".gz").rpartition(".")[2]
        lines = held if kind in ("csv", "tsv") else map(json.dumps, held)
        text = "".join(f"{line}\n" for line in lines) if kind in ("csv", "tsv", "jsonl") else held
        text = (text if isinstance(text, str) else json.dumps(text)).encode()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder if len(files) > 1 else folder / next(iter(files))


@pytest.mark.parametrize("name", CASES)
def test_files_are_read_as_they_are_written_or_refused(tmp_path, name):
    """`read`: the curve of each context length; `refused`: words that the one line has."""
    case = CASES[name]
    path = laid_out(tmp_path, case["files"])
    chosen = {key: case[key] for key in ("tokens", "columns") if key in case}
    if "refused" in case:
        with pytest.raises(InputFileError) as refused:
            posbias.read(path, **chosen)
        assert all(word in str(refused.value) for word in case["refused"])
        assert "\n" not in str(refused.value)
        return
    curves = read_curves(path, Choice(**chosen))
    assert ["" if length is None else f"{length:.0f}" for length in curves] == list(case["read"])
    for profile, expected in zip(curves.values(), case["read"].values(), strict=True):
        assert profile.mass == pytest.approx(expected, abs=case.get("tolerance", 1e-8))
        assert not case.get("errors") or (profile.se is not None and len(profile.samples) > 3)
    profile = next(iter(curves.values()))
    held = {"model": profile.name, "places": profile.at.tolist()}
    held["counts"] = [*map(list, profile.counts or ())]
    if profile.places is not None:
        held["documents"] = profile.places.length if profile.places.unit == "documents" else None
    for key in case.keys() & {"counts", "places", "model", "documents"}:
        assert held[key] == case[key]
    assert "samples" not in case or profile.samples.tolist() == case["samples"]


# --- two results ----------------------------------------------------------------------------------------------


def answers(path, curve, seed, questions=60, shuffled=False, column="question_id,"):
    """A file of answers to questions by place; without a column for these, nobody knows which belong together."""
    draw = np.random.default_rng(seed)
    right = draw.uniform(size=(questions, len(curve))) < curve
    rows = [
        f"{f'q{q},' if column else ''}{place},{int(right[q, place])}"
        for q in range(questions)
        for place in range(len(curve))
    ]
    rows = draw.permutation(rows).tolist() if shuffled else rows
    path.write_text("\n".join([f"{column}position,correct", *rows]))
    return posbias.read(path), right.astype(float)


def test_two_results_are_paired_by_their_questions_in_whatever_order(tmp_path):
    one, right = answers(tmp_path / "a.csv", [0.9, 0.5, 0.8], 1)
    other, others = answers(tmp_path / "b.csv", [0.9, 0.7, 0.8], 2, shuffled=True)
    between = posbias.compare(one, other).between
    assert (between.paired, between.trials) == (True, (60, 60))
    difference = (right - others).mean(axis=1)
    assert between.numbers["mean"].value == pytest.approx(difference.mean())
    assert between.numbers["mean"].se == pytest.approx(difference.std(ddof=1) / math.sqrt(60), rel=0.1)
    fewer, _ = answers(tmp_path / "c.csv", [0.9, 0.7, 0.8], 2, questions=40)
    assert posbias.compare(one, fewer).between.trials == (40, 40)
    unnamed, _ = answers(tmp_path / "d.csv", [0.9, 0.7, 0.8], 2, column="")
    assert not posbias.compare(one, unnamed).between.paired


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("sizes", [(80, 80, 80), (80, 71, 77)])
def test_answers_that_are_not_paired_are_independent_in_whatever_order_they_stand(tmp_path, sizes, numbered):
    draw = np.random.default_rng(5)
    right = [
        np.sort(draw.uniform(size=size) < rate) for size, rate in zip(sizes, (0.7, 0.5, 0.6), strict=True)
    ]
    rows = [f"{place},{int(one)}" for place, column in enumerate(right) for one in column]
    rows = [f"{row},{number}" for number, row in enumerate(rows)] if numbered else rows
    found = []
    for order in (rows, rows[::-1], draw.permutation(rows).tolist()):
        head = "position,correct,question_id" if numbered else "position,correct"
        (tmp_path / "a.csv").write_text("\n".join([head, *order]))
        found.append(posbias.read(tmp_path / "a.csv"))
    for one in found:
        np.testing.assert_array_equal(one.samples, found[0].samples)
        np.testing.assert_allclose(one.mass, [column.mean() for column in right], rtol=1e-12)
    errors = [column.std(ddof=1) / math.sqrt(column.size) for column in right]
    samples = found[0].samples
    np.testing.assert_allclose(samples.std(axis=0, ddof=1) / math.sqrt(len(samples)), errors, rtol=1e-9)
    (gaps,) = found[0].places.gaps.values()
    for name, pair in {"first - middle": (0, 1), "last - middle": (2, 1), "first - last": (0, 2)}.items():
        assert gaps[name].se == pytest.approx(math.hypot(*(errors[place] for place in pair)), rel=0.25)


@pytest.mark.parametrize("trials", [2, 3])
def test_of_fewer_than_four_trials_nothing_is_said(tmp_path, trials):
    found, _ = answers(tmp_path / "a.csv", [1.0, 0.0, 0.5], 3, questions=trials)
    (gaps,) = found.places.gaps.values()
    spread = [gap for gap in gaps.values() if gap.se]
    assert spread
    assert all(gap.ends == (-1.0, 1.0) for gap in spread)
    assert found.places.verdict == "inconclusive"
    assert "tell nothing" in found.places.verdict_in_words


@pytest.mark.parametrize("column", ["question_id,", ""])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_result_against_its_copy_is_equal(tmp_path, column, shuffled):
    one, _ = answers(tmp_path / "a.csv", [0.9, 0.5, 0.8], 1, column=column)
    copy, _ = answers(
        tmp_path / "b.csv", [0.9, 0.5, 0.8], 1, column=column, shuffled=shuffled and bool(column)
    )
    between = posbias.compare(one, copy).between
    assert (between.verdict, {number.value for number in between.numbers.values()}) == (
        "no difference",
        {0.0},
    )
    assert "same results" in between.sentences()[-1]
    # where all answers are right, two models may still differ
    for name in ("e.csv", "f.csv"):
        answers(tmp_path / name, [1.0, 1.0, 1.0], 1, questions=20)
    ceiling = [posbias.read(tmp_path / name) for name in ("e.csv", "f.csv")]
    assert posbias.compare(*ceiling).between.verdict == "inconclusive"


def test_a_folder_of_several_of_our_results_says_which(tmp_path):
    for name in ("pairs-5", "pairs-10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "retrieval.json").write_text("{}")
    with pytest.raises(InputFileError, match="pairs-10, pairs-5"):
        posbias.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "measures"), [("scores", "score"), ("accuracy", "accuracy"), ("correct", "correct")]
)
def test_scores_by_trial_and_place_become_rates(tmp_path, name, measures):
    right = np.random.default_rng(0).uniform(size=(30, 5)) < np.linspace(0.9, 0.4, 5)
    np.savez(tmp_path / "a.npz", **{name: right if name == "correct" else right.astype(float)})
    profile = posbias.read(tmp_path / "a.npz")
    assert (profile.kind, profile.measures, profile.samples.tolist()) == ("rate", measures, right.tolist())
    assert profile.se == pytest.approx(right.std(axis=0, ddof=1) / np.sqrt(30))
    np.savez(tmp_path / "b.npz", accuracy=40.0 + right)
    assert posbias.read(tmp_path / "b.npz").mass.tolist() == pytest.approx((0.4 + right / 100).mean(axis=0))
    for wrong in (np.ones(5), np.ones((3, 1)), np.full((3, 4), np.nan), -np.ones((3, 4))):
        np.savez(tmp_path / "c.npz", **{name: wrong})
        with pytest.raises(InputFileError):
            posbias.read(tmp_path / "c.npz")


# --- attributions relative to what position predicts -----------------------------------------------------------


@given(st.integers(1, 6), st.integers(2, 7), st.integers(0, 99))
def test_normalised_attributions_are_shares_over_the_prior(prompts, tokens, seed):
    draw = np.random.default_rng(seed)
    rows, weights = draw.normal(size=(prompts, tokens)), draw.uniform(0.1, 1, tokens)
    attributions = Profile(rows.mean(axis=0), samples=rows, kind="signed")
    found = prior_normalised(attributions, Profile.from_weights(weights))
    ratios = [
        [rows[p, j] / sum(abs(rows[p])) / (weights[j] / sum(weights)) for j in range(tokens)]
        for p in range(prompts)
    ]
    assert found.mass == pytest.approx(np.mean(ratios, axis=0), rel=1e-9, abs=1e-12)
    if prompts > 1:
        error = np.std(ratios, axis=0, ddof=1) / math.sqrt(prompts)
        assert found.se == pytest.approx(error, rel=1e-9, abs=1e-12)
        noisy = Profile.from_samples(draw.lognormal(size=(20, tokens)))
        wide, narrow = (prior_normalised(attributions, one) for one in (noisy, Profile(noisy.mass)))
        assert wide.se**2 - narrow.se**2 == pytest.approx((wide.mass * noisy.se / noisy.mass) ** 2, rel=1e-6)
    refused("prior", lambda: prior_normalised(attributions, Profile(np.full(tokens, 0.5), kind="rate")))
    refused("prior", lambda: prior_normalised(attributions, Profile.from_weights(np.ones(tokens + 1))))
    refused("prior", lambda: prior_normalised(attributions, Profile.from_weights(np.eye(tokens)[0])))


def test_attributions_that_follow_the_prior_have_no_residual_and_content_shows():
    draw = np.random.default_rng(1)
    prior = posbias.Profile.from_weights(np.linspace(1, 4, 8))
    noise = draw.lognormal(0, 0.1, size=(40, 8))
    plain = prior.mass * noise
    content = plain * np.where(np.arange(8) == 3, 4.0, 1.0)
    for rows, expected in ((plain, ()), (content, (3,))):
        found = prior_normalised(Profile(rows.mean(axis=0), samples=rows, kind="signed"), prior)
        significant = residuals(found)
        # with one position raised all others' shares fall: they are significant too, below 1
        assert tuple(one.position for one in significant if one.ratio.value > 1) == expected
    assert significant[0].position == 3
    reach = t.ppf(1 - 0.05 / 16, 39) * found.se[3]
    assert significant[0].ratio.interval == pytest.approx(
        (found.mass[3] - reach, found.mass[3] + reach), rel=1e-12
    )


def test_together_the_intervals_err_in_at_most_their_share_of_trials():
    draw = np.random.default_rng(2)
    prior, wrong = posbias.Profile.from_weights(np.ones(10)), 0
    for _ in range(400):
        rows = draw.dirichlet(np.full(10, 50.0), size=20)
        found = prior_normalised(Profile(rows.mean(axis=0), samples=rows, kind="signed"), prior)
        wrong += bool(residuals(found))
    # 5 % of 400 are 20, and three standard errors above are 33
    assert wrong <= 33


# --- hostile files ----------------------------------------------------------------------------------------


def test_arrays_that_would_run_code_or_lie_about_their_size_are_refused(tmp_path):
    np.savez(tmp_path / "object.npz", scores=np.array([{"a": 1}], dtype=object))
    np.savez(tmp_path / "attention.npz", attentions=np.zeros((2, 2, 4, 4)))
    np.savez(tmp_path / "padded.npz", attributions=np.ones((2, 4)), attention_mask=np.tri(2, 4, 2))
    np.savez(tmp_path / "empty.npz", scores=np.zeros((0, 4)))
    np.save(tmp_path / "nameless.npy", np.ones((4, 4)))
    (tmp_path / "tensor.pt").write_bytes(b"PK")
    (tmp_path / "half.jsonl").write_text('{"pred": "a"}\n{"pred": \n')
    (tmp_path / "nan.csv").write_text("position,score\n0,nan\n1,1\n2,1\n")
    whole = io.BytesIO()
    np.save(whole, np.zeros((4, 4)))
    header = (b"(" * 999).ljust(999) + b"\n"
    held = {
        "huge": whole.getvalue().replace(b"(4, 4)", b"(4000000000, 4)"[:6]),
        "cut": whole.getvalue()[:-8],
        "odd": b"text",
        "open": b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header,
    }
    for name, content in held.items():
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as packed:
            packed.writestr("scores.npy", content)
    for path in tmp_path.iterdir():
        with pytest.raises(InputFileError) as refused:
            posbias.read(path)
        assert "\n" not in str(refused.value), path
