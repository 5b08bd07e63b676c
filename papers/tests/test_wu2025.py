"""Figures 1 to 24 of Wu et al. 2025: which cells they need, what is known of trained ones, what comes along; the
sink metric of language models by prompt against loops over their own attention.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from answers import faults
from hypothesis import given
from hypothesis import strategies as st
from trained_networks import PAIRED, depth_outcomes, gaps_of, outcome, pairs

from posbias.core.errors import InvalidValueError
from posbias.core.formats import dump_json, save_json
from posbias.measurement import load_model
from posbias.measurement.job import MeasurementJob
from posbias.measurement.run import prepared
from posbias.training.cells import load_cell, run_cells
from posbias_papers.cli.answers import PaperWu2025
from posbias_papers.reproduction import reproduce
from posbias_papers.results import collect, state
from posbias_papers.statements import STATEMENTS
from posbias_papers.wu2025 import (
    FULL,
    QUICK,
    STUDIES,
    Effort,
    Setting,
    effort_of,
    networks,
    outcomes,
    record_cells,
)
from posbias_papers.wu2025.observed import MODELS, SMALL, even_sinks, observed, prompt_sinks, sinks_by_prompt
from posbias_papers.wu2025.outcomes import PAIRS, outcome_of, read_records, record_line, records
from posbias_papers.wu2025.settings import EMBEDDINGS
from posbias_papers.wu2025.table import _above_even, table

REPEATED = ((4, 13), (5, 14), (3, 15), (6, 16), (7, 17), (8, 18), (9, 20), (10, 21), (11, 22), (12, 23))
"""Figures, and those that repeat them with a fixed vocabulary."""
BRIEF = Effort(2, {2: 6}, 40)


# --- which cells -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effort", [QUICK, FULL], ids=lambda effort: effort.name)
def test_every_setting_is_one_valid_experiment(effort):
    settings = {setting for study in STUDIES.values() for setting in study.cells}
    experiments = {effort.experiment(setting) for setting in settings}
    assert len(experiments) == len(settings) == 130


def test_what_the_figures_vary_and_share():
    assert STUDIES.find(["fig24"]) == ["fig21", "fig22", "fig23"]
    for number, again in REPEATED:
        settings = [replace(one, inputs="fixed_vocabulary") for one in STUDIES[f"fig{number}"].cells]
        assert settings == list(STUDIES[f"fig{again}"].cells)
    fig2, fig4, fig9, fig10 = ({*STUDIES[f"fig{n}"].cells} for n in (2, 4, 9, 10))
    assert fig4 < fig2
    assert fig9 == fig10 < fig2
    asked = {n: {s.task().answers for s in STUDIES[f"fig{n}"].cells} for n in (3, 6, 7, 8)}
    assert asked == {3: {(0, 7)}, 6: {(0,)}, 7: {(4,)}, 8: {(7,)}}


def test_an_effort_is_a_name_or_a_number_of_iterations():
    assert effort_of(100_000) == FULL
    assert {effort_of(25_000, 3).steps(setting) for setting in STUDIES["fig14"].cells} == {25_000}
    for wrong in ((30, 0), (0,), ("some",), (30, 1, None, "code")):
        with pytest.raises(InvalidValueError, match=r"^(networks|effort|embedding): "):
            effort_of(*wrong)


def test_what_needs_no_training_is_drawn_and_leads_to_claims_that_are_there(tmp_path):
    done = reproduce("wu2025", ["fig1", "table1"], out=tmp_path)
    assert [claim.verdict for claim in done.claims["fig1"]] == ["holds"]
    assert not (tmp_path / "cells").exists()
    assert not faults(json.loads(dump_json(PaperWu2025.of(**done.as_dict()).as_json())))
    rows = json.loads((tmp_path / "table1.json").read_text())["rows"]
    known = {claim.id for one in (*STUDIES.values(), *STATEMENTS) for claim in one.claims}
    causal, decay, both, sinks, lost = ({*row["claims"].split(", ")} for row in rows)
    assert causal | decay | both | sinks | lost <= known
    assert {"wu2025/theorem-4.1", "wu2025/fig3/2"} <= causal
    assert {"wu2025/theorem-4.3", "wu2025/fig12/3"} <= sinks - lost


# --- the table, the figures --------------------------------------------------------------------------------


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_attention_beyond_even_against_a_loop_over_queries(width, seed):
    tokens = 7
    kernels = np.random.default_rng(seed).dirichlet(np.ones(tokens), (2, 3, tokens))
    for within in (False, True):
        found = _above_even(kernels, width, "within" if within else "first")
        for network in range(2):
            beyond = [
                kernels[network, layer, query, max(0, query - width + 1)] - 1 / min(width, query + 1)
                for layer in range(3)
                for query in range(1, tokens)
                if (query >= width) == within
            ]
            assert found[network] == pytest.approx(math.fsum(beyond) / len(beyond), abs=1e-12)


def test_a_row_is_a_network_and_those_that_have_not_learnt_have_no_gap():
    one = outcome(Setting(), gaps_of(pairs(0.1, 0.2, 0.1)), accuracy=[0.6, 0.05, 0.6])
    frame = table({Setting(): one}, [Setting()])
    assert frame.index.get_level_values("network").tolist() == [0, 1, 2]
    assert np.isnan(frame["first_last"]).tolist() == [False, True, False]
    np.testing.assert_array_equal(frame["first_last"].iloc[[0, 2]], one.gaps["first-last"][[0, 2]])
    assert frame["sink"].iloc[0] == one.sinks[0, 0]


PANELS = {"fig2": 12, "fig3": 4, "curves": 12, "anisotropy": 2, "fig9": 4, "fig10": 2, "fig11": 6}
SLOW = ("fig2", "fig11", "curves")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PANELS]
)
def test_a_figure_shows_its_panels(name):
    study = STUDIES[name]
    gaps = {} if name in (*PAIRED, "fig2", "curves") else {"gaps": lambda setting: pairs(0.1, 0.1, 0.0)}
    found = depth_outcomes(study, **gaps)
    frame = study.table(found)
    page = study.page(frame)
    assert len(page.tables[0].rows) == len(study.cells)
    assert [row["pair"] for row in page.data["cells"]] == [*PAIRS] * len(found)
    assert len(study.draw(frame, page.note).axes) == PANELS[name]


def test_accuracies_of_every_mask_lie_within_the_axes_that_masks_share():
    study = STUDIES["fig3"]
    for ax in study.draw(study.recorded(study).table(), "").axes:
        low, high = ax.get_ylim()
        assert all(low <= y <= high for line in ax.lines for y in line.get_ydata() if y == y)


# --- training ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "wu2025"
    return folder, reproduce("wu2025", ["fig9", "fig10"], out=folder, effort=BRIEF, workers=1)


@pytest.fixture
def own_records(made, tmp_path, monkeypatch):
    """Records of the cells that were trained here alone."""
    path = tmp_path / "records.jsonl"
    assert record_cells(made[0] / "cells", path) == 2
    monkeypatch.setattr(outcomes, "RECORDS", path)
    return path


def test_figures_are_trained_drawn_and_written(made):
    folder, done = made
    written = {f"{name}.{kind}" for name in ("fig9", "fig10") for kind in ("svg", "png", "md", "json", "csv")}
    assert {path.name for path in folder.iterdir() if path.is_file()} == written
    assert {path.name for path in done.written} == written
    # few iterations teach nothing
    assert [claim.verdict for claim in done.claims["fig10"]] == ["undecided"]
    answer = json.loads(dump_json(PaperWu2025.of(**json.loads(dump_json(done.as_dict()))).as_json()))
    assert not faults(answer)
    stamps = {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}
    assert [path.suffix for path in stamps] == [".nc"] * 2
    reproduce("wu2025", "fig10", out=folder, effort=BRIEF, workers=1)
    assert {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()} == stamps


def test_a_record_says_what_its_cell_says(made, own_records):
    folder, done = made
    (known,) = read_records(own_records).values()
    assert known.keys() == {*STUDIES["fig10"].cells}
    cells = {cell.experiment: cell for cell in map(load_cell, (folder / "cells").glob("*.nc"))}
    for setting, one in known.items():
        cell = cells[BRIEF.experiment(setting)]
        trained = outcome_of(cell)
        np.testing.assert_array_equal(trained.sinks, cell.sinks.metric())
        for pair in PAIRS:
            np.testing.assert_array_equal(trained.gaps[pair], cell.evaluation.gaps[pair].over_all.values)
        np.testing.assert_allclose(one.attention, trained.attention, atol=0.5001e-4)
        assert record_line(setting, one) == record_line(setting, replace(trained, made=one.made))
        assert {"weights", "versions", "finished", "device"} <= one.made.keys()
    study = STUDIES["fig10"]
    judged = [claim.as_dict() for claim in study.judged(study.table(known))]
    assert judged == [claim.as_dict() for claim in done.claims["fig10"]]
    before = own_records.read_bytes()
    record_cells(folder / "cells", own_records)
    assert own_records.read_bytes() == before


def test_missing_networks_are_on_record_as_soon_as_each_is_finished(tmp_path, monkeypatch):
    found = []
    path = tmp_path / "records.jsonl"
    monkeypatch.setattr(outcomes, "RECORDS", path)
    monkeypatch.setattr(networks, "record_cells", lambda folder: found.append(record_cells(folder, path)))
    monkeypatch.setattr(networks, "EFFORT", BRIEF)
    monkeypatch.setattr(networks, "ORDER", (("fig10",), ("fig9",)))
    assert [line.partition(",")[0] for line in networks.left()] == ["fig10: 2 cells", "fig9: 0 cells"]
    networks.train(1, tmp_path / "cells")
    assert found == sorted(found)
    assert {*found} == {0, 1, 2}
    assert networks.left() == ["fig10: 0 cells, 0.0 h", "fig9: 0 cells, 0.0 h"]


def test_claims_of_a_fresh_folder_are_judged_on_recorded_results(made, own_records, tmp_path):
    fresh, here = (
        [(one.id, one.verdict, one.estimate) for one in collect(folder, papers=["wu2025/fig10"])]
        for folder in (tmp_path, made[0].parent)
    )
    assert fresh == here
    record = STUDIES["fig10"].recorded(STUDIES["fig10"])
    assert (record.whole, record.serves) == (True, ())
    own_records.write_text(own_records.read_text().splitlines()[0] + "\n")
    assert not STUDIES["fig10"].recorded(STUDIES["fig10"]).whole
    own_records.unlink()
    assert STUDIES["fig10"].recorded(STUDIES["fig10"]) is None


def test_the_greater_effort_counts(made, own_records):
    study, data = STUDIES["fig10"], json.loads((made[0] / "fig10.json").read_text())
    folder = own_records.parent / "results"
    (folder / "wu2025").mkdir(parents=True)
    for iterations, source in ((7, "made here"), (5, "6 iterations, 2 networks")):
        basis = data["rests_on"] | {"iterations": iterations}
        save_json(data | {"rests_on": basis, "effort": "made here"}, study.file(folder))
        assert state(study, folder).data["effort"] == source


def test_a_recorded_effort_is_drawn_without_training(own_records, tmp_path):
    spent = replace(effort_of(6, 2), sequences=40)
    done = reproduce("wu2025", "fig10", out=tmp_path / "drawn", effort=spent, workers=1)
    assert not list((tmp_path / "drawn").rglob("*.nc"))
    assert done.made["fig10"].page.data["rests_on"]["recorded"] == 2
    assert records(effort_of(6, 2), STUDIES["fig10"].cells) == {}


def test_both_embeddings_are_on_record_and_found_by_theirs():
    cells = STUDIES["fig2"].cells
    text, code = (records(effort_of(25_000, 3, embedding=one), cells) for one in ("variance", "deviation"))
    assert len(text) == len(cells) == 18
    assert code.keys() == {*cells}
    assert STUDIES["fig2"].recorded(STUDIES["fig2"]).basis.inputs == EMBEDDINGS["deviation"]
    assert {one.embedding for one in code.values()} == {"deviation"}
    assert all(one.loss.tolist() != text[cell].loss.tolist() for cell, one in code.items())


@pytest.mark.slow
def test_a_recorded_cell_of_two_layers_is_trained_again(tmp_path):
    """Hours of work are checked by one network of a cell, whose gaps agree within errors."""

    setting = STUDIES["fig10"].cells[0]
    effort = effort_of(25_000, 3)
    known = records(effort, [setting])[setting]
    experiment = replace(effort, networks=1).experiment(setting)
    (cell,) = run_cells([experiment], tmp_path, sequences=known.sequences, workers=known.made["threads"])
    again = outcome_of(cell)
    for pair in PAIRS:
        np.testing.assert_allclose(again.gaps[pair], known.gaps[pair][:1], atol=0.02)


# --- sinks of language models ------------------------------------------------------------------------------

TOKENS, WINDOW = 70, 64


def naive_metric(attention, allowed):
    """Σ_i 1{A_ij > .2} / Σ_i M_ij by loops, mean over heads, in float64."""
    return [
        np.mean([[head[query, key] > 0.2 for query in np.flatnonzero(column)] for head in attention])
        for key, column in enumerate(allowed.T)
    ]


@pytest.mark.parametrize("name", ["tiny-nope", "tiny-window"])
def test_the_metric_is_that_of_the_model_s_own_attention_and_of_even_attention(name):
    loaded = load_model(name)
    measured = sinks_by_prompt(loaded, tokens=TOKENS, prompts=2, seed=1, threads=1)
    apart = np.subtract.outer(np.arange(256), np.arange(256))
    allowed = (apart >= 0) & (apart < (WINDOW if name == "tiny-window" else 256))
    even = naive_metric((allowed / allowed.sum(axis=1, keepdims=True))[None], allowed)
    np.testing.assert_allclose(even_sinks(loaded), even, atol=1e-12)
    allowed = allowed[:TOKENS, :TOKENS]
    drawn = prepared(loaded, MeasurementJob(text=None, tokens=TOKENS, prompts=2, seed=1)).ids
    for prompt, ids in enumerate(drawn):
        with torch.no_grad():
            layers = loaded.model(torch.from_numpy(ids)[None], output_attentions=True).attentions
        for layer, weights in enumerate(layers):
            own = measured["sink_metric"].values[prompt, layer]
            np.testing.assert_allclose(own, naive_metric(weights[0].numpy(), allowed), atol=1e-12)


@pytest.mark.parametrize(
    "name", [*SMALL[1::3], pytest.param(MODELS[0], marks=[pytest.mark.real_model, pytest.mark.slow])]
)
def test_recorded_sinks_are_those_of_the_models_that_come_along(name):
    """The first prompt again: shares of queries may differ by a few whose weight is next to the threshold."""
    recorded, loaded = observed()[name], load_model(name)
    assert recorded["checksum"] == loaded.checksum
    request = MeasurementJob(
        text=None, tokens=recorded["tokens"], prompts=recorded["prompts"], seed=recorded["seed"]
    )
    assert request.source.sha256 == recorded["text_sha256"]
    found = prompt_sinks(loaded, prepared(loaded, request).ids[0], "prompt 0")
    metric = found["sink_metric"].mean(axis=0)
    np.testing.assert_allclose(metric[0], recorded["first"][0], atol=1e-3)
    np.testing.assert_allclose(metric[recorded["strongest"]], recorded["other"][0], atol=0.02)
    np.testing.assert_allclose(even_sinks(loaded)[: len(recorded["even"])], recorded["even"], atol=1e-6)


def test_recorded_sinks_agree_with_one_another():
    for name, one in observed().items():
        assert len(one["first"]) == len(one["other"]) == one["prompts"], name
        np.testing.assert_allclose(np.mean(one["first"]), one["by_token"][0], atol=2e-6)
        np.testing.assert_allclose(np.mean(one["by_layer"]), one["by_token"][0], atol=2e-6)
    assert list(observed()) == list(MODELS)


def test_networks_tested_with_another_middle_item_are_a_record_of_their_own(tmp_path):
    code, text = (
        records(effort_of(100_000, 3, middle, "variance"), STUDIES["fig2"].cells) for middle in (None, 3)
    )
    (cell,) = text
    assert (code[cell].middle, text[cell].middle) == (None, 3)
    # what is refuted by the text's middle item is by the code's as well
    for one in (code[cell], text[cell]):
        assert one.learnt.all()
        assert one.of("first-middle").min() > 0.1
        assert one.of("middle-last").max() < -0.05
    (claim,) = (one for one in collect(tmp_path, papers=["wu2025/fig2"]) if one.id == "wu2025/fig2/15")
    assert (claim.verdict, "its middle item too" in claim.why) == ("fails", True)
