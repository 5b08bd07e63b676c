"""Our own studies: cells against plain computation, results on record against the documents, made and kept."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import llama

from posbias import measure
from posbias.comparison.predictors import PREDICTORS, half, predictions
from posbias.core.errors import InvalidValueError
from posbias.designs import design
from posbias.profiles.claims import LEVEL
from posbias.profiles.estimate import Estimate
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.masks import SlidingWindow
from posbias.theory.mixing import AttentionOnly, known_mixing
from posbias.theory.positional import DecayBias
from posbias.theory.rope_scaling import LinearScaling, YaRN, plain_angles
from posbias.theory.variation import MEASURED
from posbias_papers.extensions import EXTENSIONS, make, on_record
from posbias_papers.extensions.cells import Cell
from posbias_papers.extensions.designed import CAUSAL, DECAY, FLAT, NARROW, TOKENS, DesignedCell
from posbias_papers.extensions.influence import InfluenceCell, agreement, curves, effects
from posbias_papers.extensions.ordering import gains
from posbias_papers.extensions.predictors import PAIRS, PredictorCell, holm, outcomes, predicted, trial
from posbias_papers.extensions.second_model import WINDOW, LengthCell, edge, moved, scaled
from posbias_papers.study import Study


@dataclass(frozen=True)
class Square(Cell):
    """The square of a number."""

    number: int

    kind = "square_cell"

    def compute(self, on_event=None):
        return {"square": self.number**2}


def test_cells_are_kept_and_computed_again_when_asked_to(tmp_path):
    small = Study("extensions/small", "Squares", "Why?", (), (Square(2), Square(3)), (0, 0), "cells")
    for rerun, number in ((False, 2), (False, 2), (True, 4)):
        assert [path.name for path in make(small, tmp_path, rerun=rerun)] == ["small.md", "small.json"]
        assert len([*(tmp_path / "cells").iterdir()]) == number


@pytest.mark.parametrize("name", ["designed", "ordering", "predictors", "influence", "second-model"])
def test_what_takes_long_is_on_record(name, tmp_path):
    extension = EXTENSIONS[name]
    assert [*on_record(extension.cells)] == [*extension.cells]
    files = make(extension, tmp_path)
    assert [file.name for file in files][:1] == [f"{name}.md"]


# --- designed ----------------------------------------------------------------------------------------------


def test_the_designs_are_those_that_the_search_finds():
    base = Architecture(2, (Layer(),), AttentionOnly())
    varied = {"window": range(5, TOKENS + 1), "decay": [k / 100 for k in range(31)]}
    found = [dict(one.values) for one in design(base, varied, tokens=TOKENS).front]
    narrow = next(one for one in found if one["window"] <= 13)
    assert [found[0], narrow] == [{"window": one.window, "decay": one.decay} for one in (FLAT, NARROW)]


@pytest.mark.parametrize(
    ("cell", "distance"), [(FLAT, 0.022), (NARROW, 0.040), (CAUSAL, 0.250), (DECAY, 0.080)]
)
def test_distances_of_designs_and_controls(cell, distance):
    layer = Layer(mask=SlidingWindow(cell.window), positional=DecayBias(cell.decay))
    found = design(Architecture(2, (layer,), AttentionOnly()), {"mixing": [1.0]}, tokens=TOKENS)
    assert found.baseline.distance == pytest.approx(distance, abs=5e-4)


@pytest.mark.slow
def test_what_is_on_record_is_trained_again():
    """Two networks of ten: float32 on another machine may have other last bits, which 2,500 steps make larger."""
    stored = on_record(EXTENSIONS["designed"].cells)[NARROW]
    again = DesignedCell(NARROW.window, NARROW.decay).compute(networks=2)
    assert again["predicted"] == pytest.approx(stored["predicted"], abs=1e-12)
    assert again["gaps"] == pytest.approx(stored["gaps"][:2], abs=0.03)


# --- second model --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 0.0), (0.5, np.log(2))])
def test_a_fall_at_the_edge_of_the_window_is_found_beyond_that_by_distance(factor, expected):
    """Influence that falls by distance at one rate, and by `factor` more from the window's edge on."""
    distance = np.arange(1024)[::-1]
    influence = np.exp(-distance / 100) * np.where(distance < WINDOW, 1.0, factor)
    np.testing.assert_allclose(edge(np.tile(influence, (3, 1))), expected, atol=1e-12)


def test_the_curve_on_record_is_that_of_the_document():
    """A U up to the window's length, through the first token alone; at twice that, a step at the window's edge."""
    stored = on_record(EXTENSIONS["second-model"].cells)
    found = {cell.tokens: one for cell, one in stored.items() if isinstance(cell, LengthCell)}
    for tokens, one in found.items():
        assert (one["verdict"], one["without first"]) == ("U" if tokens <= WINDOW else "recency", "recency")
        assert len(one["influence"]) == tokens
    for tokens, interval in ((1024, (0.21, 0.78)), (2048, (0.22, 0.48))):
        assert Estimate(*found[tokens]["edge"]).interval == pytest.approx(interval, abs=0.01)
    np.testing.assert_allclose(found[256]["mixing"], known_mixing()["gemma-3-270m"].coefficients, rtol=1e-3)


def test_the_first_token_moves_the_answer_as_its_gradient_says_in_gemma():
    stored = on_record(EXTENSIONS["second-model"].cells)
    samples = curves({cell: one for cell, one in stored.items() if isinstance(cell, InfluenceCell)})
    first = {
        name: 64 * values.mean(axis=0)[0] / values.mean(axis=0).sum() for name, values in samples.items()
    }
    assert first.pop("gradient") == pytest.approx(5.0, abs=0.05)
    assert (min(first.values()), max(first.values())) == pytest.approx((3.4, 9.3), abs=0.05)


@pytest.mark.parametrize("scaling", ["linear", "ntk", "yarn"])
def test_scaled_models_turn_as_rotary_scalings_do(scaling):
    model = llama()
    changed = scaled(model.config, scaling, 4.0)
    rotary = type(model.model.rotary_emb)(changed)
    size, base = model.config.head_dim, model.config.rope_parameters["rope_theta"]
    expected = {
        "linear": LinearScaling(4.0).angles_of(base, size),
        "ntk": plain_angles(base * 4.0 ** (size / (size - 2)), size),
        "yarn": YaRN(4.0, model.config.max_position_embeddings).angles_of(base, size),
    }
    np.testing.assert_allclose(rotary.inv_freq, expected[scaling], rtol=1e-6)
    assert changed.rope_parameters != model.config.rope_parameters


def test_what_scaling_did_is_said_as_it_is_on_record():
    """A change whose interval holds zero stands in brackets."""
    changes = {}
    for cell, change in moved(on_record(EXTENSIONS["second-model"].cells)):
        for name, one in change.items():
            low, high = one.interval
            word = f"{one.value:+.3f}" if low > 0 or high < 0 else f"({one.value:+.3f})"
            changes.setdefault((cell.model, name, cell.scaling), []).append(word)
    for (model, name, scaling), words in changes.items():
        [line] = [line for line in MEASURED["rope_factor"] if line.startswith(f"{model}, ")]
        _, _, of_name = line.partition({"first": "first 5 %", "last": "last 5 %"}.get(name, name))
        assert of_name.partition(";")[0].count(f"{scaling} {', '.join(words)}") == 1


# --- ordering -----------------------------------------------------------------------------------


def test_orders_found_on_some_trials_gain_on_others():
    rows = [row for row in gains(on_record(EXTENSIONS["ordering"].cells)) if row["model"] == "smollm2-135m"]
    assert len(rows) == 12
    assert all(row["retrieval"].value > 0 for row in rows if row["over"] == "best first")
    given_order = [row["retrieval"].value for row in rows if row["over"] == "as given"]
    assert given_order == pytest.approx([0.052, 0.125, 0.270], abs=5e-4)


@pytest.mark.parametrize("tokens", [17, 33])
def test_effects_are_those_of_whole_prompts_without_a_token(tokens):
    model = llama().double()
    ids, others = torch.randint(64, (2, tokens), generator=torch.manual_seed(0))
    found = effects(model, ids, others)
    with torch.no_grad():
        before = model(ids[None]).logits[0, -1].log_softmax(-1)
        for place in (0, 7, tokens - 1):
            for change, put in (("deleted", others[:0]), ("replaced", others[place : place + 1])):
                changed = torch.cat([ids[:place], put, ids[place + 1 :]])
                after = model(changed[None]).logits[0, -1].log_softmax(-1)
                kl = float((before.exp() * (before - after)).sum())
                assert found[f"kl_{change}"][place] == pytest.approx(kl, rel=1e-6)
                first, second = before.topk(2).indices
                margin = float(abs((after - before)[first] - (after - before)[second]))
                assert found[f"logit_{change}"][place] == pytest.approx(margin, rel=1e-6)


def test_agreement_is_that_of_mean_curves_and_its_differences_are_paired():
    first, second, third = np.random.default_rng(0).random((3, 12, 20))
    one, effect, other = (
        curves.mean(axis=0) / curves.mean(axis=0).sum() for curves in (first, second, third)
    )
    place, difference = np.arange(20) / 19, agreement(first, second, third)
    for name, score in {
        "Spearman": lambda curve: scipy.stats.spearmanr(curve, effect).statistic,
        "Wasserstein": lambda curve: scipy.stats.wasserstein_distance(place, place, curve, effect),
    }.items():
        assert agreement(first, second)[name].value == pytest.approx(score(one))
        assert difference[name].value == pytest.approx(score(one) - score(other))
        assert difference[name].se > 0
        assert agreement(first, second, first)[name].se == 0.0


# --- predictors --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured():
    return measure("tiny-alibi", tokens=24, prompts=12, seed=3)


def test_scores_of_predictors_are_those_of_the_other_half(measured):
    found, place = trial(measured), np.arange(24) / 23
    for key in (predictor.key for predictor in PREDICTORS):
        scores = []
        for even in (True, False):
            mass = predictions(half(measured, even))[key].mass
            rest = half(measured, not even)["influence"].values.mean(axis=0)
            rank = scipy.stats.spearmanr(mass, rest).statistic
            scores.append([rank, scipy.stats.wasserstein_distance(place, place, mass, rest)])
        both = [found["scores"][key][name] for name in ("spearman", "wasserstein")]
        assert both == pytest.approx(np.mean(scores, axis=0), abs=1e-5)
    for more, less in PAIRS:
        difference = found["differences"][f"{more} - {less}"]["wasserstein"]
        one, other = (found["scores"][name]["wasserstein"] for name in (more, less))
        assert difference[0] == pytest.approx(one - other, rel=5e-5, abs=3e-5)
    with pytest.raises(InvalidValueError):
        trial(measure("tiny-nope", tokens=8, prompts=2))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_step_by_step(p_values):
    adjusted = holm(p_values)
    rejecting = True
    for step, place in enumerate(np.argsort(p_values, kind="stable")):
        rejecting &= p_values[place] * (len(p_values) - step) < LEVEL
        assert (adjusted[place] < LEVEL) == rejecting
    assert max(adjusted) <= 1.0


def results(*cells: tuple[str, float, float, float]) -> dict[PredictorCell, dict]:
    """Cells: model, how much better than recency energy is by rank and by place, noise ceiling."""
    return {
        PredictorCell(model, "made", number): {
            "noise": {"noiseless": {"spearman": ceiling}},
            "differences": {
                "energy - recency": {"spearman": [rank, 0.01, 30.0], "wasserstein": [place, 0.01, 30.0]}
            },
        }
        for number, (model, rank, place, ceiling) in enumerate(cells)
    }


def test_a_win_is_sure_after_the_correction_and_three_quarters_of_them_predict_a_model():
    made = results(
        ("a", 0.2, -0.2, 0.9), ("a", 0.02, 0.2, 0.9), ("b", -0.2, -0.02, 0.9), ("b", 0.2, 0.0, 0.2)
    )
    assert [*outcomes("energy", "recency", "spearman", made).values()] == ["win", "open", "loss"]
    assert [*outcomes("energy", "recency", "wasserstein", made).values()] == ["win", "loss", "open", "open"]
    won, even, lost = ("a", 0.2, -0.2, 0.9), ("a", 0.0, 0.0, 0.9), ("a", 0.2, 0.2, 0.9)
    assert predicted("energy", results(won, won, won, even)) == {"a": True}
    assert predicted("energy", results(won, won, even, even)) == {"a": False}
    assert predicted("energy", results(won, won, won, lost)) == {"a": False}


def test_no_predictor_predicts_every_model_on_record():
    found = on_record(EXTENSIONS["predictors"].cells)
    predicts = {one.key: predicted(one.key, found) for one in PREDICTORS}
    assert [model for model, does in predicts["energy"].items() if does] == ["tiny-rope"]
    assert [model for model, does in predicts["fitted"].items() if does] == ["tiny-window"]
    assert not any(all(one.values()) for one in predicts.values())
