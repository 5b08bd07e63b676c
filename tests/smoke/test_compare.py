"""Compare and report: profiles, measurements, retrievals, and results made elsewhere."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from http_servers import prompt_of, serving
from readers import reads, reads_both_ends
from scipy import stats

import posbias

ELSEWHERE = Path(__file__).parents[1] / "elsewhere"
CURVE = [0.9, 0.6, 0.5, 0.6, 0.8]


def test_two_profiles(answered):
    p, q = [4.0, 1.0, 2.0, 5.0], [3.0, 1.0, 1.5, 2.0]
    Path("p.json").write_text(json.dumps(p))
    Path("q.json").write_text(json.dumps(q))
    answer = answered("compare", "p.json", "q.json")
    assert answer["spearman"] == pytest.approx(stats.spearmanr(p, q).statistic)
    positions = np.arange(4) / 3
    assert answer["wasserstein"] == pytest.approx(stats.wasserstein_distance(positions, positions, p, q))
    assert answer["baselines"].keys() == {"uniform", "recency_only"}


def test_a_prediction_against_a_measurement_with_its_noise(answered, measured):
    answered("predict", "bloom-560m", "--tokens", 32, "--out", "p.json")
    answer = answered("compare", "p.json", measured)
    low, high = answer["intervals"]["spearman"][:2]
    assert low <= answer["spearman"] <= high
    assert answer["prompts"] == 8
    assert 0 < answer["reliability"]["split_half"]["wasserstein"]["value"] < 1


def test_in_python_a_file_a_measurement_and_a_profile_are_compared_alike(measured, folder):
    """Paths go where profiles and measurements do, in the shell as here."""
    held, predicted = posbias.load_measurement(measured), posbias.predict("bloom-560m", 32)
    influence = posbias.measured_influence(held)
    expected = posbias.compare(predicted, influence)
    for given in (measured, str(measured), held):
        assert str(posbias.compare(predicted, given)) == str(expected)
        assert str(posbias.compare_all({"p": given}, predicted)) == str(
            posbias.compare_all({"p": influence}, predicted)
        )
        (one, other) = (posbias.order(3, [0.5, 0.3, 0.2], profile=of) for of in (given, influence))
        assert (one.permutation, one.verdict) == (other.permutation, other.verdict)
    assert posbias.predictions(measured).keys() == posbias.predictions(held).keys()
    rates = posbias.read(ELSEWHERE / "liu_kv")
    assert str(posbias.compare(ELSEWHERE / "liu_kv", rates)) == str(posbias.compare(rates, rates))
    page = posbias.write_report(measured, folder / "page").page.read_bytes()
    assert page == posbias.write_report(held, folder / "other").page.read_bytes()
    bundled = posbias.load_measurement("smollm2-135m")
    assert (
        posbias.extrapolate("smollm2-135m", 700).mass.tolist()
        == posbias.extrapolate(bundled, 700).mass.tolist()
    )


def test_two_measurements_of_the_same_prompts(answered, measured, folder):
    other = posbias.load_measurement(measured)
    other["influence"] = other["influence"] * np.linspace(0.5, 1.5, 32)
    posbias.save_measurement(other, folder / "other.nc")
    answer = answered("compare", "other.nc", measured)["influence_differences"]
    first, _, last = (part["difference"]["value"] for part in answer["parts"])
    assert answer["paired"]
    assert last > 0 > first


def test_two_retrievals(answered):
    """One finds the first place and the last, the other all three; another seed has other trials."""
    lists = ("--pairs", 6, "--positions", 3, "--wording", "json", "--prompts", 40)
    for name, reader, seed in (("ends", reads_both_ends, 0), ("same", reads, 0), ("other", reads, 1)):
        with serving(lambda _, body, reader=reader: reader(prompt_of(body))) as server:
            words = ("retrieve", "toy", "--endpoint", server.url, *lists)
            answered(*words, "--seed", seed, "--out", name)
    for name in ("same", "other"):
        between = answered("compare", "ends", name)["between"]
        assert (between["verdict"], between["paired"]) == ("changes the bias", name == "same")
        assert between["differences"]["mean"]["value"] == pytest.approx(-1 / 3)


def test_five_predictors_of_a_measurement(measured):
    made = posbias.load_measurement(measured)
    scores = posbias.compare_all(posbias.predictions(made), posbias.measured_influence(made))
    assert [*scores.agreements] == [predictor.key for predictor in posbias.PREDICTORS]
    assert all(-1 <= one.spearman.value <= 1 for one in scores.agreements.values())


def test_a_report_of_a_measurement(answered, measured):
    answer = answered("report", measured, "--out", "page")
    keys = {predictor.key for predictor in posbias.PREDICTORS}
    assert answer["agreements"].keys() == answer["held_out"]["agreements"].keys() == keys
    assert "<svg" in Path("page/report.html").read_text()


def test_a_report_of_results_made_elsewhere(answered):
    rows = [
        f"{trial},{place},{int(trial < 10 * rate)}" for place, rate in enumerate(CURVE) for trial in range(10)
    ]
    Path("eval.csv").write_text("id,position,correct\n" + "\n".join(rows))
    answer = answered("report", "eval.csv", "--out", "page")
    assert answer["claims"][0]["number"] == pytest.approx(0.9 - np.mean(CURVE[1:-1]))


def test_a_report_of_decisions_made_elsewhere(answered):
    """FastChat's pairs of one judge who prefers what stands first in 9 of 12 items, and one who never does."""
    about = {"model_1": "new", "model_2": "old", "turn": 1, "g1_winner": "model_1"}
    rows = [
        {"question_id": item, "judge": [judge, "pair-v2"], **about, "g2_winner": f"model_{1 + flips}"}
        for judge, least in (("first", 3), ("steady", 12))
        for item in range(12)
        for flips in [item >= least]
    ]
    rows[0] |= {"g1_winner": "model_2", "g2_winner": "model_1"}
    Path("pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = posbias.read("pairs.jsonl")
    assert read["first"].effects.gaps["first - last"].value == pytest.approx(np.log(9 / 1) / 2)
    answer = answered("report", "pairs.jsonl", "--out", "page")
    assert answer["headline"] == "Slots move the choices of 1 of 2 (p < 0.05 each)"
    assert [judge["changed"] for judge in answer["judges"]] == [[10, 12], [0, 12]]
    page = Path("page/report.html").read_text()
    assert page.count("<svg") == 2
    assert "<td>nan" not in page


def test_a_data_frame_is_read_as_its_file(folder):
    rates = pd.DataFrame({"position": range(5), "accuracy": CURVE, "n": 40})
    assert posbias.read(rates).mass.tolist() == CURVE
    orders = [["tea", "milk"], ["milk", "tea"]]
    pairs = pd.DataFrame({"options": orders * 6, "winner": "tea", "item": np.arange(12) // 2})
    (answer,) = posbias.read(pairs).values()
    assert answer.decisions.order.tolist() == [[0, 1], [1, 0]] * 6
    with pytest.raises(posbias.PosbiasError, match=r"^table: expected columns of places and scores"):
        posbias.read(pd.DataFrame({"a": [1, 2]}))


@pytest.mark.parametrize("form", ["csv", "json", "jsonl", "gz"])
def test_tables_in_every_form(form):
    rows = [{"position": place, "accuracy": rate, "n": 40} for place, rate in enumerate(CURVE)]
    path = Path(f"eval.{form}") if form != "gz" else Path("eval.json.gz")
    if form == "csv":
        path.write_text("position,accuracy,n\n" + "\n".join(",".join(map(str, row.values())) for row in rows))
    elif form == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        content = json.dumps(rows).encode()
        path.write_bytes(gzip.compress(content) if form == "gz" else content)
    np.testing.assert_allclose(posbias.read(path).mass, CURVE)


@pytest.mark.parametrize("name", ["needle", "samples_posbias_lists.jsonl", "inseq_saliency.json"])
def test_files_of_other_tools_are_compared_ordered_by_and_reported(name, answered):
    """Rates, of needles the mean over context lengths, of lm-eval, and inseq's signed numbers of one length."""
    Path("hits.jsonl").write_text('{"score": 0.2, "tokens": 9}\n{"score": 0.7, "tokens": 9}\n')
    every = ("--tokens", "all") if name == "needle" else ()
    answers = {
        "p": answered("compare", ELSEWHERE / name, ELSEWHERE / "liu_kv", "--by-share", *every),
        "profile": answered("order", "hits.jsonl", "--profile", ELSEWHERE / name, *every),
        "source": answered("report", ELSEWHERE / name, "--out", "page", *every),
    }
    assert all(answer["read_as"][key] for key, answer in answers.items())
    claims = answers["source"]["claims"]
    assert [one["id"] for one in claims] == ["elsewhere/first-above-middle", "elsewhere/last-above-middle"]


def test_prior_normalised_attributions():
    attribution = posbias.Profile.from_weights(np.array([4.0, 1.0, 2.0]))
    prior = posbias.Profile.from_weights(np.array([2.0, 1.0, 1.0]))
    ratio = posbias.prior_normalised(attribution, prior)
    expected = attribution.mass / prior.mass
    np.testing.assert_allclose(np.asarray(ratio.mass) / ratio.mass[0], expected / expected[0])
