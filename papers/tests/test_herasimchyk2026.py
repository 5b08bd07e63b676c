"""Tables and figures of Herasimchyk et al. 2026: scores, claims, pages, pictures, and the cells behind them."""

import json
from dataclasses import replace
from itertools import permutations
from statistics import NormalDist

import numpy as np
import pytest
import xarray as xr
from cyclopts import App, CoercionError
from measured import DEPTH, HEADS, TOKENS, measurement
from project import ROLLOUT_FILES, needs_rollout_files
from scipy.special import stdtrit

from posbias.comparison.scores import compare
from posbias.core.errors import InputFileError, InvalidValueError, OutputFileError
from posbias.profiles.evidence import NEAR
from posbias.profiles.measurements import load_measurement, save_measurement
from posbias.profiles.profile import Profile
from posbias.reports.plots import picture_bytes
from posbias_papers.cli import paper
from posbias_papers.herasimchyk2026 import STUDIES, TARGETS, reproduce
from posbias_papers.herasimchyk2026.cells import CONTROL, Effort, Key, check
from posbias_papers.herasimchyk2026.curves import SCORES, Curves, trough
from posbias_papers.herasimchyk2026.fig5 import chosen_heads, fit, fits, rows
from posbias_papers.herasimchyk2026.levels import curves_of, slopes_of
from posbias_papers.herasimchyk2026.measurements import Measurements
from posbias_papers.herasimchyk2026.printed import TABLE1, TABLE4, TABLE5, TABLE6, Number, numbers
from posbias_papers.herasimchyk2026.profiles import collapse_of_paper
from posbias_papers.herasimchyk2026.section4 import order_of
from posbias_papers.herasimchyk2026.table6 import homogeneity
from posbias_papers.study import ELSEWHERE

HERE = {"tokens": TOKENS}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Finished measurements: an additive model on two corpora, and one with another encoding."""
    folder = tmp_path_factory.mktemp("measured")
    given = {
        "toy-noise": measurement(),
        "toy-other": measurement(text="other", seed=2),
        "rot-noise": measurement("rot", additive=False, seed=3),
    }
    return [str(save_measurement(one, folder / f"{name}.nc")) for name, one in given.items()]


@pytest.fixture(scope="module")
def made(files, tmp_path_factory):
    """Everything but the pictures that other tests look at."""
    what = [name for name in TARGETS if not name.startswith("fig")]
    return reproduce([*what, "fig2"], out=tmp_path_factory.mktemp("out"), models=files, **HERE)


@pytest.fixture(scope="module")
def measurements(files):
    cells = {Key(one.attrs["model"], one.attrs["text"], TOKENS): one for one in map(load_measurement, files)}
    return Measurements(cells, tokens=TOKENS)


def data_of(made, name):
    """The numbers of a table or figure, as its JSON has them."""
    return json.loads(next(path for path in made.files if path.name == f"{name}.json").read_text())


def shaped(weights, prompts=8, noise=0.01):
    """A measured curve of a shape, with prompts."""
    random = np.random.default_rng(4)
    samples = np.asarray(weights) * random.lognormal(0, noise, (prompts, len(weights)))
    return Profile.from_samples(samples, measures="gradient")


def rollout(weights):
    return Profile.from_weights(np.asarray(weights, dtype=np.float64))


# --- agreement ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [*SCORES])
def test_a_difference_is_that_of_the_scores_with_the_error_of_paired_resamples(measurements, score):
    curves = measurements.curves(measurements.keys[0])
    one = replace(curves, seed=5)
    difference = one.difference("here", score, "b", "a")
    b, a = (
        getattr(compare(curves.levels[letter], curves.measured).agreements["p"], score) for letter in "ba"
    )
    assert difference.estimate.value == pytest.approx(b.value - a.value, abs=1e-12)
    drawn = one.resampled
    np.testing.assert_allclose(drawn.sum(axis=1), 1.0, rtol=1e-12)
    plain = [
        float(SCORES[score](curves.levels["b"].mass, row) - SCORES[score](curves.levels["a"].mass, row))
        for row in drawn[:50]
    ]
    assert difference.estimate.se == pytest.approx(np.std(plain, ddof=1), rel=0.35)
    assert replace(curves, seed=5).difference("here", score, "b", "a") == difference
    assert replace(curves, seed=6).difference("here", score, "b", "a").estimate.se != difference.estimate.se


def test_resampled_means_spread_as_the_standard_error_says(measurements):
    curves = measurements.curves(measurements.keys[0])
    spread = curves.resampled.std(axis=0, ddof=1)
    prompts = len(curves.measured.samples)
    # the bootstrap's variance is that of the plain estimate, (n − 1)/n of the unbiased one
    np.testing.assert_allclose(spread, curves.measured.se * np.sqrt((prompts - 1) / prompts), rtol=0.15)


def test_trough_is_the_profiles_own():
    random = np.random.default_rng(0)
    mass = random.dirichlet(np.ones(TOKENS), size=20)
    found = trough(mass, max(1, round(0.05 * TOKENS)))
    assert found.tolist() == [Profile.from_weights(row).summary.trough for row in mass]


def test_the_best_level_is_the_highest_spearman_and_the_lowest_wasserstein():
    position = np.arange(TOKENS, dtype=float)
    curves = Curves(
        "m", "t", {"a": rollout(position[::-1] + 1), "b": rollout(position + 1)}, shaped(position + 1)
    )
    assert curves.best("spearman") == curves.best("wasserstein") == "b"


# --- claims ------------------------------------------------------------------------------------------------


def verdicts(name, results):
    """Of all claims of a table or figure, those of stand-ins where these extend the paper's."""
    claims = STUDIES[name].judged(results)
    extended = {claim.id.removesuffix(ELSEWHERE) for claim in claims if claim.id.endswith(ELSEWHERE)}
    return [claim.verdict for claim in claims if claim.id not in extended]


def of_levels(curves):
    """Curves as Figure 2 has them, where they need not have been measured."""
    return Measurements({}, [curves])


def of_scores(curves):
    """Curves as Tables 2 to 5 have them."""
    key = Key(curves.model, curves.corpus, TOKENS)
    return Measurements({key: xr.Dataset()}, tokens=TOKENS, kept={key: curves})


def u(left, right, tokens=TOKENS):
    position = np.arange(tokens)
    return 0.3 + left * np.exp(-position / 4) + right * np.exp((position - tokens + 1) / 4)


def test_level_claims_hold_of_what_the_paper_describes_and_fail_of_its_reverse():
    first = np.r_[1.0, np.full(TOKENS - 1, 1e-3)]
    as_said = Curves(
        "m",
        "t",
        {"a": rollout(first), "b": rollout(u(2, 1)), "c": rollout(u(1.5, 1.5))},
        shaped(u(2, 1), noise=1e-4),
    )
    assert verdicts("fig2", of_levels(as_said)) == verdicts("fig2", of_scores(as_said)) == ["holds"] * 7
    flat = np.ones(TOKENS)
    reverse = Curves(
        "m", "t", {"a": rollout(flat), "b": rollout(flat), "c": rollout(flat + 9 * first)}, shaped(u(0, 3))
    )
    assert verdicts("fig2", of_scores(reverse))[:6] == ["fails"] * 6


def test_a_minimum_elsewhere_is_said_to_be_elsewhere():
    position = np.arange(TOKENS)
    curves = Curves(
        "m",
        "t",
        {"a": rollout(u(9, 0)), "b": rollout(1 + np.abs(position - 40))},
        shaped(1 + np.abs(position - 10.0), noise=1e-3),
    )
    claim = STUDIES["fig2"].judged(of_levels(curves))[-1]
    assert claim.verdict == "fails"
    assert claim.evidence[0].estimate.value == pytest.approx(0, abs=1e-9)
    found = curves.minimum("m", "b")
    assert found.estimate.value == pytest.approx(30 / (TOKENS - 1), abs=1e-9)


def test_without_a_measured_curve_nothing_is_decided_about_it():
    bare = Curves("m", "t", {"a": rollout(u(9, 0)), "b": rollout(u(2, 1))})
    claims = STUDIES["fig2"].judged(of_levels(bare))
    assert [claim.id.rpartition("/")[2] for claim in claims] == ["1", "2", "6", "7"]
    assert [claim.verdict for claim in claims] == ["holds", "holds", "undecided", "undecided"]


def test_models_in_place_of_the_papers_extend_its_claims_and_leave_them_open():
    stand_in = Curves("tiny", "t", {"a": rollout(u(9, 0)), "b": rollout(u(2, 1))}, shaped(u(2, 1)))
    u_shaped, elsewhere = (
        claim
        for claim in STUDIES["fig2"].judged(of_scores(stand_in))
        if claim.id.startswith("herasimchyk2026/fig2/2")
    )
    assert (u_shaped.verdict, u_shaped.claim.provenance) == ("undecided", "paper")
    assert "tiny stands in for the paper's models" in u_shaped.why
    assert "see herasimchyk2026/fig2/2/elsewhere; decided by falcon-rw-7b, mpt-7b" in u_shaped.why
    assert (elsewhere.verdict, elsewhere.claim.provenance) == ("holds", "ours")
    # levels of the paper's models from the authors' files are no stand-in
    of_paper = Curves("mpt-7b", "FineWeb-Edu", {"a": rollout(u(9, 0)), "b": rollout(np.ones(TOKENS))})
    both = replace(of_scores(stand_in), from_files=[of_paper])
    found = {claim.id: claim.verdict for claim in STUDIES["fig2"].judged(both)}
    assert found["herasimchyk2026/fig2/2"] == "fails"
    assert found["herasimchyk2026/fig2/2/elsewhere"] == "holds"
    assert found["herasimchyk2026/fig2/6"] == "undecided"


def test_a_model_of_the_paper_counts_on_the_papers_texts_alone():
    bloom = Curves(
        "bloom-7b1", "web", {"a": rollout(u(9, 0)), "b": rollout(np.ones(TOKENS))}, shaped(u(2, 1))
    )
    elsewhere = {claim.id: claim.verdict for claim in STUDIES["fig2"].judged(of_scores(bloom))}
    assert elsewhere["herasimchyk2026/fig2/2"] == "undecided"
    on_its_text = replace(bloom, corpus="fineweb-edu")
    found = {claim.id: claim.verdict for claim in STUDIES["fig2"].judged(of_scores(on_its_text))}
    assert found["herasimchyk2026/fig2/2"] == "fails"
    assert not [id for id in found if id.endswith(ELSEWHERE) and "fig2/1" not in id]


def test_attention_only_rollout_of_the_papers_models_collapses_at_256_tokens_and_not_at_2048():
    collapse = {one.where: one.estimate.value + 0.5 for one in collapse_of_paper()}
    assert len({where.split(" ")[0] for where in collapse}) == 5
    assert min(collapse.values()) > 0.99
    assert {"falcon-rw-7b with the files' slopes", "bloom-176b with the files' slopes"} < {*collapse}
    longer = {one.where: one.estimate.value + 0.5 for one in collapse_of_paper(2048)}
    assert longer["mpt-7b"] == pytest.approx(0.072, abs=5e-4)
    assert longer["bloom-7b"] == pytest.approx(0.052, abs=5e-4)


def test_every_claim_says_what_it_is_of():
    for study in STUDIES.values():
        for claim in (*study.claims, *study.row_claims):
            about = claim.place, claim.strength, claim.scope, claim.effort, claim.provenance
            assert all(about), claim.id


def test_agreement_claims_hold_where_b_is_right_and_fail_where_it_is_not():
    truth, wrong, near = u(2, 1), u(2, 1).max() + 0.1 - u(2, 1), u(1.2, 1.5)
    right = of_scores(
        Curves("m", "t", {"a": rollout(wrong), "b": rollout(truth), "c": rollout(near)}, shaped(truth))
    )
    assert verdicts("table4", right)[:3] == ["holds"] * 3
    # (c) is further off than (b), and (a), flat but upside down, no further than an even spread by a margin
    assert verdicts("table5", right)[1] == "fails"
    swapped = of_scores(
        Curves("m", "t", {"a": rollout(truth), "b": rollout(wrong), "c": rollout(truth)}, shaped(truth))
    )
    assert verdicts("table4", swapped)[:3] == ["fails"] * 3
    assert verdicts("table5", swapped)[:3] == ["fails", "holds", "fails"]


def test_one_prompt_decides_nothing():
    one = Curves("m", "t", dict.fromkeys("abc", rollout(u(1, 1))), shaped(u(1, 1), prompts=1))
    assert verdicts("table4", of_scores(one))[:3] == ["undecided"] * 3


def of_mixings(mixings):
    """λ by prompt and layer of each corpus, as measured at 8 tokens."""
    cells = {
        Key("m", corpus, 8): xr.Dataset({"mixing": (("prompt", "layer"), mixing)})
        for corpus, mixing in mixings.items()
    }
    return Measurements(cells, tokens=8)


def test_mixing_claims():
    falling = np.array([0.5, 0.4, 0.3, 0.2]) + np.random.default_rng(0).normal(0, 0.01, (9, 4))
    assert verdicts("fig1", of_mixings({"t": falling})) == ["holds"]
    assert STUDIES["fig1"].judged(of_mixings({"t": falling}))[0].verdict == "undecided"
    assert verdicts("fig1", of_mixings({"t": falling[:, ::-1]})) == ["fails"]
    assert verdicts("fig4", of_mixings({"t": falling, "u": falling + 0.001})) == ["holds", "holds"]
    assert verdicts("fig4", of_mixings({"t": falling, "u": falling + 0.2})) == ["holds", "fails"]
    # one layer alone is enough
    apart = falling + np.array([0, 0, 0.2, 0])
    assert verdicts("fig4", of_mixings({"t": falling, "u": apart}))[1] == "fails"


def test_most_models_are_more_than_half_of_the_papers():
    def most(falling, rising=()):
        layers = np.linspace(0.5, 0.2, 6)
        files = dict.fromkeys(falling, layers) | dict.fromkeys(rising, layers[::-1])
        stand_in = np.tile(layers[::-1], (9, 1)) + np.random.default_rng(0).normal(0, 0.01, (9, 6))
        results = replace(of_mixings({"t": stand_in}), mixings=files)
        return [claim.verdict for claim in STUDIES["fig1"].judged(results)]

    first, *others = TABLE1
    assert most(others, [first]) == ["holds", "fails"]
    assert most([first], others) == ["fails", "fails"]
    assert most([first]) == ["undecided", "fails"]


def test_the_claim_about_texts_compares_with_the_first():
    falling = np.array([0.5, 0.3]) + np.random.default_rng(0).normal(0, 0.01, (9, 2))
    _, claim = STUDIES["fig4"].judged(of_mixings({"wiki": falling, "web": falling}))
    assert "web" in claim.evidence[0].where
    assert claim.id == "herasimchyk2026/fig4/2"


def schedules(layers: int, apart, seed: int, noise: float = 0.03):
    """λ on two corpora whose schedules differ by `apart` in every layer, nine and eight prompts."""
    random = np.random.default_rng(seed)
    one, other = (random.normal(0.4, noise, (prompts, layers)) for prompts in (9, 8))
    return of_mixings({"t": one, "u": other + np.asarray(apart)})


def apart_claim(results):
    return STUDIES["fig4"].judged(results)[1]


def rate(verdict: str, *, layers: int, apart, runs: int = 400) -> float:
    found = [apart_claim(schedules(layers, apart, seed)).verdict for seed in range(runs)]
    return sum(one == verdict for one in found) / runs


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 12, 30])
def test_schedules_as_near_as_may_be_are_called_apart_in_no_more_than_5_percent(layers):
    """The layer is picked by how far apart it is, which noise alone makes likely among many."""
    limit = 0.05 + 4 * np.sqrt(0.05 * 0.95 / 400)
    assert rate("fails", layers=layers, apart=NEAR) < limit
    # nor near, where one layer is just too far apart
    assert rate("holds", layers=layers, apart=np.eye(layers)[0] * NEAR) < limit


def test_one_layer_apart_among_many_is_found():
    far = np.zeros(30)
    far[7] = 0.3
    assert rate("fails", layers=30, apart=far, runs=50) == 1.0
    assert rate("fails", layers=30, apart=0.0, runs=50) == 0.0
    (effect,) = apart_claim(schedules(30, far, 0)).evidence
    assert effect.where.endswith("u, layer 7")
    near = apart_claim(schedules(30, 0.0, 0, noise=0.005))
    assert near.verdict == "holds"


def test_the_papers_own_numbers_are_counted_as_they_are():
    poorly, often, *_ = STUDIES["table4"].judged(Measurements({}))
    count = sum(b > max(a, c) for by in TABLE4.values() for a, b, c in by.values())
    assert count == 9
    assert often.estimate.value == pytest.approx(count / 15, abs=1e-3)
    assert "9 of 15" in often.why
    poorly_too, content, *_ = STUDIES["table5"].judged(Measurements({}))
    assert [claim.id.rpartition("/")[2] for claim in (poorly_too, content)] == ["4", "5"]
    count = sum(c < b for by in TABLE5.values() for _, b, c in by.values())
    most, larger = content.evidence
    assert count == 10
    # one of the fifteen differs by .01, which rounding may be
    assert most.estimate.value == pytest.approx(count / 15, abs=2e-3)
    assert larger.estimate.value == pytest.approx(6 / 6 - 4 / 9, abs=2e-3)
    moderate, pronounced = STUDIES["table6"].judged(of_contents(contents()))[1:]
    assert moderate.estimate.value == 0.45
    found = poorly, often, poorly_too, content, moderate, pronounced
    assert {(one.verdict, one.claim.provenance) for one in found} == {("holds", "paper")}


def judged_numbers(table):
    """The claims of a table that rest on the paper's own numbers alone, by number."""
    return {int(one.id.rpartition("/")[2]): one for one in STUDIES[table].judged(Measurements({}))}


def by_model(table, level):
    """The mean over corpora of what is printed of a level, by model."""
    return {model: np.mean([row["abc".index(level)] for row in by.values()]) for model, by in table.items()}


def test_printed_scores_are_high_and_small_on_average_and_not_in_every_case():
    spearmans, distances = judged_numbers("table4"), judged_numbers("table5")
    cells = [row[place] for by in TABLE4.values() for row in by.values() for place in (1, 2)]
    assert sum(value > 0.5 for value in cells) == 26
    assert spearmans[6].estimate.value == min(cells) == 0.41
    means = [
        np.mean([by[corpus][place] for by in TABLE4.values()])
        for corpus in ("FineWeb-Edu", "DCLM-Baseline", "Wikipedia")
        for place in (1, 2)
    ]
    assert spearmans[7].estimate.value == pytest.approx(min(means))
    cells = [row[place] for by in TABLE5.values() for row in by.values() for place in (1, 2)]
    assert distances[6].estimate.value == max(cells) == 0.21
    large = [row[2] for model in ("mpt-30b", "bloom-176b") for row in TABLE5[model].values()]
    assert distances[11].estimate.value == max(large) == 0.09
    found = spearmans[6], spearmans[7], distances[6], distances[11]
    assert [one.verdict for one in found] == ["fails", "holds", "fails", "holds"]
    # high and small have no number in the text
    assert {one.claim.provenance for one in found} == {"ours"}


@pytest.mark.parametrize(
    ("name", "table", "number", "level", "sign", "verdict", "provenance"),
    [
        ("table4", TABLE4, 8, "c", 1, "holds", "paper"),
        ("table4", TABLE4, 9, "b", 1, "fails", "ours"),
        ("table5", TABLE5, 7, "c", -1, "holds", "paper"),
        ("table5", TABLE5, 8, "b", -1, "fails", "ours"),
    ],
)
def test_larger_models_agree_better_with_content(name, table, number, level, sign, verdict, provenance):
    means = by_model(table, level)
    large = [means.pop("mpt-30b"), means.pop("bloom-176b")]
    found = judged_numbers(name)[number]
    assert found.estimate.value == pytest.approx(sign * (np.mean(large) - np.mean([*means.values()])))
    assert (found.verdict, found.claim.provenance) == (verdict, provenance)


@pytest.mark.parametrize(
    ("name", "table", "number", "level", "sign", "correlation", "verdict"),
    [
        ("table4", TABLE4, 10, "c", 1, 0.7, "undecided"),
        ("table4", TABLE4, 11, "b", 1, 0.1, "undecided"),
        ("table5", TABLE5, 9, "c", -1, 0.9, "holds"),
        ("table5", TABLE5, 10, "b", -1, -0.3, "undecided"),
    ],
)
def test_agreement_by_depth_is_a_rank_correlation_of_five(
    name, table, number, level, sign, correlation, verdict
):
    means = by_model(table, level)
    depths = [TABLE1[model][1] for model in means]
    ranks = [np.argsort(np.argsort(values)) for values in (depths, sign * np.array([*means.values()]))]
    found = judged_numbers(name)[number]
    assert found.estimate.value == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert found.estimate.value == pytest.approx(correlation)
    # the deviation of the rank correlation over all orders of five
    orders = [np.corrcoef(ranks[0], order)[0, 1] for order in permutations(range(5))]
    assert found.estimate.se == pytest.approx(np.std(orders))
    assert found.verdict == verdict
    assert by_model(TABLE4, "b")["mpt-30b"] == min(by_model(TABLE4, "b").values())


# --- content and order -------------------------------------------------------------------------------------


def contents(tokens=40, heads=3):
    """Mean content: heads of unequal spread, all normal, on and below the diagonal."""
    random = np.random.default_rng(8)
    spread = np.array([0.01, 0.1, 1.0])[None, :heads, None, None]
    entries = random.normal(0, 1, (2, heads, tokens, tokens)) * spread
    return np.where(np.tri(tokens, dtype=bool), entries, np.nan)


def test_a_range_of_all_heads_makes_heads_of_small_logits_look_homogeneous():
    own, shared = (homogeneity("m", contents(), reading) for reading in ("corrected", "published"))
    assert (shared.below[:, 0] > 0.8).all()
    assert (own.below[:, 0] < 0.3).all()
    # but normal numbers look just the same, which is what the null says
    for one in (own, shared):
        np.testing.assert_allclose(one.below, one.below_null, atol=0.06)


def test_homogeneous_content_is_above_its_null():
    content = contents()
    content[..., 5, 2] = 40.0  # one outlier in a narrow crowd
    found = homogeneity("m", content)
    assert (found.below > found.below_null + 0.3).all()


def test_the_null_is_drawn_from_the_seed():
    first, again, other = (homogeneity("m", contents(), seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.below_null, again.below_null)
    assert (first.below_null != other.below_null).any()


def test_figure_5_shows_heads_from_the_worst_to_the_best(measurements):
    content = measurements.cells[measurements.keys[0]]["content"].values
    found = fit(content)
    maps = chosen_heads(content, found.r2)
    shown = [float(one.title.rpartition("= ")[2]) for one in maps]
    assert shown == sorted(shown)
    assert shown[0] == pytest.approx(found.r2.min(), abs=6e-3)
    assert shown[-1] == pytest.approx(found.r2.max(), abs=6e-3)
    assert found.r2.shape == (DEPTH, HEADS)


def test_figure_5_shows_the_layers_and_heads_that_were_chosen(measurements):
    content = measurements.cells[measurements.keys[0]]["content"].values
    r2 = fit(content).r2

    def places(layers, heads):
        shown = chosen_heads(content, r2, layers, heads)
        assert all(np.array_equal(one.matrix, content[place], equal_nan=True) for one, place in
                   zip(shown, map(place_of, shown), strict=True))  # fmt: skip
        return [place_of(one) for one in shown]

    def place_of(one):
        return tuple(int(word) for word in one.title.replace(",", "").split() if word.isdigit())

    assert places([3, 0], [1, 0]) == [(3, 1), (3, 0), (0, 1), (0, 0)]
    assert {layer for layer, _ in places([2], [])} == {2}
    assert len(places([2], [])) == HEADS
    assert {head for _, head in places([], [1])} == {1}
    assert places([DEPTH, 1], [0]) == [(1, 0)]  # it has no more layers
    assert places([DEPTH], []) == []
    beyond = replace(measurements, layers=[DEPTH], kept={})
    assert STUDIES["fig5"].missing(beyond) == "no model has the layers and heads that were chosen"


def test_figure_5_leaves_out_the_model_that_the_paper_leaves_out():
    names = ["toy", "mosaicml/mpt-7b", "mosaicml/mpt-30b", "tiiuae/falcon-rw-7b"]
    cells = {Key(name, "noise", TOKENS): measurement(name) for name in names}
    results = Measurements(cells, tokens=TOKENS)
    assert [name for name, _ in rows(results)] == ["tiiuae/falcon-rw-7b", "mosaicml/mpt-7b", "toy"]
    assert STUDIES["fig5"].note(results).count("Not drawn: mosaicml/mpt-30b.") == 1
    alone = Measurements({key: cell for key, cell in cells.items() if "30b" in key.model}, tokens=TOKENS)
    assert [name for name, _ in rows(alone)] == ["mosaicml/mpt-30b"]


def of_contents(content, noise=None):
    """Mean content logits of a model, with the variance of an entry's mean over prompts where that is known."""
    cell = xr.Dataset({"content": (("layer", "head", "query", "key"), content), "loss": ("prompt", [0.0])})
    if noise is not None:
        cell["content_variance"] = ("layer", "head"), noise
    return Measurements({Key("m", "t", TOKENS): cell}, tokens=TOKENS)


def test_content_claims():
    content = np.where(np.tri(12, dtype=bool), 2.0 * np.eye(12), np.nan) + np.zeros((2, 3, 1, 1))
    good = of_contents(content)
    assert fits(good)["m"].r2 == pytest.approx(1.0)
    assert fits(good)["m"].offset == pytest.approx(2.0)
    assert verdicts("fig5", good) == ["holds", "holds"]
    assert verdicts("fig5", of_contents(contents())) == ["fails", "fails"]
    # a diagonal that noise of known variance hides
    hidden = contents() + np.where(np.eye(40, dtype=bool), 0.5, 0.0)
    noise = np.tile(np.array([0.01, 0.1, 1.0]) ** 2, (2, 1))
    found = fits(of_contents(hidden, noise))["m"]
    assert (found.most >= found.r2).all()
    assert found.r2[:, 2].max() < 0.1
    assert verdicts("fig5", of_contents(hidden[:, 2:], noise[:, 2:]))[0] == "undecided"
    assert verdicts("fig5", of_contents(hidden[:, 2:], 0.01 * noise[:, 2:]))[0] == "fails"


def test_the_published_check_of_monotonicity_counts_little_but_alibi():
    given = measurement()
    random = np.random.default_rng(2)
    kernel = np.tril(random.dirichlet(np.ones(TOKENS), size=(DEPTH, TOKENS)))
    given["kernel"] = ("layer", "query", "key"), kernel / kernel.sum(axis=-1, keepdims=True)
    assert order_of(given, "noise", "published").rate < 1e-3
    from posbias.profiles.stochastic_order import monotonicity

    assert np.mean([monotonicity(one).rate for one in given["kernel"].values]) > 0.03


@pytest.mark.parametrize(
    ("rate", "floor", "size", "verdict", "gap"),
    [
        (0.02, 0.03, 1e-3, "undecided", "undecided"),
        (0.02, 0.01, 1e-3, "fails", "fails"),
        (1e-7, 0.01, 1e-3, "holds", "undecided"),
        (0.02, np.nan, 1e-3, "fails", "fails"),
        (1e-7, np.nan, 1e-6, "holds", "holds"),
        (1e-7, np.nan, 1e-7, "holds", "fails"),
        (0.0, np.nan, 0.0, "holds", "undecided"),
    ],
)
def test_a_rate_within_its_noise_floor_is_undecided_and_its_gap_too(rate, floor, size, verdict, gap):
    violations = {
        "monotonicity_rate": (("layer", "tolerance"), [[rate]]),
        "monotonicity_gap": ("layer", [size]),
        "monotonicity_floor": ("layer", [floor]),
    }
    cells = {Key("m", "t", TOKENS): xr.Dataset(violations)}
    # the printed shortfall is the product of the printed share and gap to within a factor of 2
    assert verdicts("section4", Measurements(cells, tokens=TOKENS)) == [verdict, gap, "holds"]
    *_, shortfall = STUDIES["section4"].judged(Measurements(cells, tokens=TOKENS))
    assert shortfall.estimate.value == pytest.approx(np.log10(1e-6 * 2e-6 / 1e-12))


def test_gaps_are_averaged_over_violations():
    found = order_of(measurement(), "noise")
    assert (found.rate, found.worst) == (pytest.approx(0.015), 3)
    assert found.gap == pytest.approx((0.02 * 1e-3 + 0.01 * 2e-3 + 0.03 * 4e-3) / 0.06)


# --- pages and pictures ------------------------------------------------------------------------------------


def test_every_table_is_a_page_with_its_claims_and_the_printed_numbers(made):
    assert [name for name in TARGETS if not name.startswith("fig") or name == "fig2"] == list(made.made)
    text = {path.name: path.read_text() for path in made.files if path.suffix == ".md"}
    for name, claims in made.claims.items():
        assert all(claim.sentence in text[f"{name}.md"] for claim in claims)
        own = [claim.id for claim in claims if not claim.id.endswith(ELSEWHERE)]
        assert own == [f"herasimchyk2026/{name}/{place + 1}" for place in range(len(own))]
        assert name in ("table1", "table2", "table3") or claims
    assert "| bloom-176b | −0.57".replace("−", "-") in text["table2.md"]
    assert "FineWeb-Edu (c)" in text["table4.md"]
    assert f"| bloom-176b | {TABLE6['bloom-176b'][0][0]:.2f} ± 0.13" in text["table6.md"]


@pytest.fixture(scope="module")
def of_the_paper(tmp_path_factory):
    """What would be made of one of the paper's models on two of its texts, and of another on neither."""
    folder = tmp_path_factory.mktemp("paper")
    given = [measurement("bigscience/bloom-7b1", text="fineweb-edu", parameters=7_069_016_064),
             measurement("bigscience/bloom-7b1", text="wikipedia.txt", seed=5, parameters=7_069_016_064),
             measurement("toy", seed=6)]  # fmt: skip
    files = [str(save_measurement(one, folder / f"{k}.nc")) for k, one in enumerate(given)]
    what = [name for name in TARGETS if name.startswith("table")]
    return reproduce(what, out=folder / "out", models=files, **HERE)


@pytest.mark.parametrize("name", ["table2", "table3", "table4", "table5"])
def test_printed_scores_stand_beside_ours_with_the_tolerance_used(of_the_paper, name):
    data = data_of(of_the_paper, name)
    table = TABLE4 if data["score"] == "spearman" else TABLE5
    rows = {row["corpus"]: row for row in data["rows"] if "bloom" in row["model"]}
    texts = {"FineWeb-Edu": "fineweb-edu", "Wikipedia": "wikipedia.txt"}
    if name == "table2" or name == "table3":
        # the paper's Tables 2 and 3 do not show bloom-7b
        assert data["printed_beside"] == []
        assert data["not_measured"] == ["bloom-176b", "mpt-7b"]
        return
    assert [(one["corpus"], one["what"]) for one in data["printed_beside"]] == [
        (corpus, f"({letter})") for corpus in texts for letter in "abc"
    ]
    for one in data["printed_beside"]:
        letter = one["what"][1]
        ours = rows[texts[one["corpus"]]]["levels"][letter]
        low, high = ours["interval"]
        assert one["printed"] == table["bloom-7b"][one["corpus"]]["abc".index(letter)]
        assert one["here"] == pytest.approx(ours["value"])
        prompts = rows[texts[one["corpus"]]]["prompts"]
        assert one["se"] == pytest.approx((high - low) / 2 / stdtrit(prompts - 1, 0.975))
        # six numbers of the row are compared: 5 % for all of them together
        errors = NormalDist().inv_cdf(1 - 0.025 / 6)
        assert one["tolerance"] == pytest.approx(0.005 + errors * one["se"])
        assert one["within"] == (abs(one["here"] - one["printed"]) <= one["tolerance"])
    assert data["not_measured"] == ["falcon-rw-7b", "mpt-7b", "mpt-30b", "bloom-176b"]
    text = next(path for path in of_the_paper.files if path.name == f"{name}.md").read_text()
    assert "not measured here on the paper's texts, so not compared: falcon-rw-7b, mpt-7b" in text
    assert text.count("| bloom-7b |") == 7  # the printed row, and six numbers beside ours


def test_sizes_and_similarities_stand_beside_the_printed_ones(of_the_paper):
    size, depth = data_of(of_the_paper, "table1")["printed_beside"]
    assert (size["printed"], size["here"], size["within"]) == (7, pytest.approx(7.069016064), True)
    assert (depth["printed"], depth["here"], depth["within"], depth["tolerance"]) == (30, DEPTH, False, 0.5)
    table6 = data_of(of_the_paper, "table6")
    beside, row = table6["printed_beside"], next(one for one in table6["rows"] if "bloom" in one["model"])
    assert [one["what"] for one in beside] == [
        "diagonal, mean", "diagonal, deviation", "below it, mean", "below it, deviation",
    ]  # fmt: skip
    assert [one["printed"] for one in beside] == [x for pair in TABLE6["bloom-7b"] for x in pair]
    assert beside[2]["here"] == pytest.approx(np.mean(row["below"]))
    assert beside[3]["here"] == pytest.approx(np.std(row["below"]))


def test_models_that_are_none_of_the_papers_are_not_compared(made):
    for name in ("table1", "table4", "table6"):
        assert data_of(made, name)["printed_beside"] == []
        assert len(data_of(made, name)["not_measured"]) == 5


@needs_rollout_files
def test_every_page_says_which_models_come_from_files_and_which_stand_in(files, tmp_path):
    bare = reproduce("fig2", out=tmp_path / "bare", models=[], configs=ROLLOUT_FILES)
    assert "levels of mpt-7b and bloom-7b are from the authors' rollout files" in bare.pages["fig2"].note
    assert "were not measured" in bare.stand_in
    both = reproduce(
        ["fig2", "table2"], out=tmp_path / "both", models=files[:1], configs=ROLLOUT_FILES, tokens=256
    )
    for page in both.pages.values():
        assert "toy stands in for the paper's models" in page.note
        assert "levels of mpt-7b and bloom-7b are from the authors' rollout files" in page.note
    effects = [one.where for claim in bare.claims["fig2"][1:6] for one in claim.evidence]
    assert all(where.startswith(("mpt-7b, ", "bloom-7b, ")) for where in effects)
    decided = [claim.verdict for claim in bare.claims["fig2"]]
    assert decided == ["holds"] * 5 + ["undecided"] * 2


def test_all_printed_numbers_are_told_once():
    tables = [name for name in TARGETS if name.startswith("table")]
    found = [(name, one.model, one.corpus, one.what) for name in tables for one in numbers(name)]
    assert len(set(found)) == len(found) == 10 + 6 + 6 + 45 + 45 + 20
    assert Number("mpt-30b", "DCLM-Baseline", "(c)", 0.03) in numbers("table5")
    assert Number("mpt-7b", "FineWeb-Edu", "(b)", 0.88) in numbers("table2")


def test_the_numbers_of_a_table_are_those_of_the_comparison(made, measurements):
    rows = json.loads(next(path for path in made.files if path.name == "table4.json").read_text())["rows"]
    assert [(row["model"], row["corpus"]) for row in rows] == [
        ("toy", "noise"),
        ("toy", "other"),
        ("rot", "noise"),
    ]
    curves = measurements.curves(Key("toy", "other", TOKENS))
    expected = compare(curves.levels["b"], curves.measured).agreements["p"].spearman
    assert rows[1]["levels"]["b"]["value"] == pytest.approx(expected.value, rel=1e-12)
    assert rows[1]["levels"]["b"]["interval"] == pytest.approx(list(expected.interval), rel=1e-12)
    assert set(rows[2]["levels"]) == set("abcd")


def test_tables_2_and_3_show_the_first_corpus_only(made):
    for name in ("table2", "table3"):
        assert [row["corpus"] for row in data_of(made, name)["rows"]] == ["noise", "noise"]


def test_json_is_whole(made):
    from posbias.core.store import dump_json

    answer = json.loads(dump_json(made.as_dict()))
    assert {"files", "claims", "tables", "cells", "stand_in", "seconds"} == set(answer)
    assert len(answer["cells"]) == 3


def test_figures_have_the_papers_layout(measurements):
    def drawn(name):
        return STUDIES[name].draw(measurements, "a note")

    titles = [ax.get_title(loc="left") for ax in drawn("fig2").axes]
    assert titles == [
        "(a) attention only",
        "(b) residual-aware",
        "(c) with constant content",
        "(d) measured",
    ]
    assert [ax.get_title(loc="left") for ax in drawn("fig3").axes][3:] == [
        "(d) with fitted logits",
        "measured",
    ]
    four = drawn("fig4")
    assert [row["corpus"] for row in STUDIES["fig4"].data(measurements)["mixing"]] == ["other"]
    assert len(four.axes) == 1
    line = four.axes[0].lines[0].get_ydata()
    np.testing.assert_allclose(
        line, measurements.cells[Key("toy", "other", TOKENS)]["mixing"].values.mean(axis=0), rtol=1e-12
    )
    assert picture_bytes(four, "svg") == picture_bytes(drawn("fig4"), "svg")


def test_the_papers_models_are_in_the_figure_that_has_them_there():
    names = [
        "rot",
        "toy",
        "tiiuae/falcon-rw-7b",
        "mosaicml/mpt-7b",
        "bigscience/bloom",
        "bigscience/bloom-7b1",
    ]
    cells = {
        Key(name, "fineweb", TOKENS): measurement(name, text="fineweb", additive=name != "rot", seed=seed)
        for seed, name in enumerate(names)
    }
    results = Measurements(cells, tokens=TOKENS)

    def models(name):
        return [row["model"] for row in STUDIES[name].data(results)["curves"]]

    assert models("fig2") == ["bigscience/bloom", "mosaicml/mpt-7b", "toy"]
    assert models("fig3") == ["bigscience/bloom-7b1", "tiiuae/falcon-rw-7b", "rot"]
    assert "is judged with Figure 2" in STUDIES["fig3"].note(results)
    judged = {claim.id: claim for claim in STUDIES["fig2"].judged(results)}
    told = " ".join(one.where for one in judged["herasimchyk2026/fig2/3"].evidence)
    assert [name in told for name in names] == [False, False, True, True, True, True]
    alone = Measurements({key: cell for key, cell in cells.items() if "falcon" in key.model}, tokens=TOKENS)
    assert not STUDIES["fig2"].missing(
        alone
    )  # what its claims are about is shown, where it has no models of its own
    assert not STUDIES["fig3"].missing(alone)


def test_what_has_nothing_to_show_is_left_out_and_said(files, tmp_path):
    bare = load_measurement(files[0]).drop_vars(["content", "monotonicity_rate"])
    path = str(save_measurement(bare, tmp_path / "bare.nc"))
    wanted = ["table6", "fig3", "fig4", "fig5", "section4"]
    found = reproduce(wanted, out=tmp_path, models=[path], **HERE)
    assert not found.made
    assert {*found.left_out} == {*wanted}
    assert found.left_out["fig4"] == "one corpus only"


@needs_rollout_files
def test_without_measurements_the_schedule_is_left_out(tmp_path):
    found = reproduce(["fig1", "fig2"], out=tmp_path, models=[], configs=ROLLOUT_FILES)
    assert (list(found.made), found.left_out) == (["fig2"], {"fig1": "nothing measured"})


def test_the_published_reading_is_another(files, tmp_path, made):
    found = reproduce(["table2", "section4"], out=tmp_path, models=files, reading="published", **HERE)
    ours, theirs = (data_of(one, "table2")["rows"][0]["levels"]["c"]["value"] for one in (made, found))
    assert abs(ours - theirs) > 0.01
    assert "published reading" in found.pages["section4"].note


# --- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"what": "table7"}, "figure: 'table7' given, .*did you mean 'table6'"),
        ({"what": []}, "what: nothing given"),
        ({"reading": "true"}, "reading: 'true' given, 'corrected' or 'published' needed"),
        ({"models": []}, "models: none given"),
        ({"models": ["x", "x"]}, "models: x given twice"),
        ({"corpora": []}, "corpora: none given"),
        ({"prompts": 1}, "prompts: 1 given, at least 2"),
        ({"lengths": [2]}, "lengths: 2 given, integers ≥ 3"),
        ({"tokens": 2.5}, "tokens: 2.5 given, an integer ≥ 3 needed"),
        ({"layers": [-1]}, "layers: -1 given, an integer ≥ 0 needed"),
    ],
)
def test_bad_values_are_named_before_any_work(tmp_path, changes, message):
    given = {"what": "table2", "models": ["smollm2-135m"]} | changes
    with pytest.raises(InvalidValueError, match=message):
        reproduce(given.pop("what"), out=tmp_path, **given)
    assert not list(tmp_path.iterdir())


def test_files_that_are_none_are_named(tmp_path):
    with pytest.raises(InputFileError, match=r"gone\.nc given, no such file"):
        reproduce("table2", out=tmp_path, models=[str(tmp_path / "gone.nc")])
    (tmp_path / "taken").write_text("")
    with pytest.raises(OutputFileError, match="is no folder"):
        reproduce("table2", out=tmp_path / "taken", models=["smollm2-135m"])


# --- cells -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BLOOM with a tokenizer of words, as a folder, and a text."""
    import tokenizers
    import torch
    import transformers

    words = ["[UNK]", *(f"w{number}" for number in range(40))]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = tmp_path_factory.mktemp("model") / "tiny-bloom"
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]").save_pretrained(path)
    config = transformers.BloomConfig(
        vocab_size=41, hidden_size=32, n_layer=3, n_head=4, initializer_range=0.3
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BloomForCausalLM(config).save_pretrained(path)
    random = np.random.default_rng(3)
    (path.parent / "words.txt").write_text(" ".join(random.choice(words[1:], 400)))
    return path


def test_a_real_alibi_model_is_measured_once_with_its_slopes_read_off(folder, tmp_path, monkeypatch):
    given = {
        "models": [str(folder)],
        "corpora": [str(folder.parent / "words.txt")],
        "prompts": 4,
        "tokens": 16,
    }
    events = []
    made = reproduce(
        ["table2", "table6", "fig2"], out=tmp_path, scramble=True, on_event=events.append, **given
    )
    assert {(event.total, event.unit) for event in events} == {(4, "prompt")}
    [key] = [key for key in made.results.cells if not key.corpus.endswith(CONTROL)]
    cell = made.results.cells[key]
    curves = curves_of(cell, key.corpus)
    assert curves.additive
    np.testing.assert_allclose(
        slopes_of(cell), np.tile([0.25, 0.0625, 0.015625, 0.00390625], (3, 1)), rtol=1e-3
    )
    assert cell.attrs["parameters"] > 1000
    assert len(data_of(made, "table6")["rows"]) == 1

    four = reproduce("fig4", out=tmp_path, lengths=[16], **given)
    assert [cell["corpus"] for cell in data_of(four, "fig4")["mixing"]] == [f"words.txt{CONTROL}"]

    from posbias import measurement as measuring

    def refuse(*_, **__):
        raise AssertionError("measured again")

    monkeypatch.setattr(measuring, "measure", refuse)
    again = reproduce("table2", out=tmp_path, **given)
    assert data_of(again, "table2") == data_of(made, "table2")


# --- the command -------------------------------------------------------------------------------------------


def test_the_command_makes_what_is_asked(files, tmp_path, capsys):
    app = App()
    app.command(paper)

    def run(*words):
        app(["paper", "herasimchyk2026", *words], exit_on_error=False, result_action="return_value")
        return capsys.readouterr()

    common = ["--models", ",".join(files), "--tokens", str(TOKENS), "--out", str(tmp_path)]
    shown = run("table3", "table1", *common)
    assert "Printed in the paper" in shown.out
    assert "file: " in shown.out
    answer = json.loads(run("table3", *common, "--json").out)
    assert set(answer["tables"]) == {"table3"}
    with pytest.raises(CoercionError, match="'64,x' given, an integer needed, or several with commas"):
        run("fig1", *common, "--lengths", "64,x")


def test_texts_of_one_name_would_be_one_column():
    effort = Effort("few", 2, 2)
    with pytest.raises(InvalidValueError, match=r"corpora: two texts are called x\.txt"):
        check(["tiny-alibi"], ["a/x.txt", None, "b/x.txt"], [16], effort)
    check(["tiny-alibi"], ["a/x.txt", "b/y.txt", "datasets:a/x.txt"], [16], effort)
