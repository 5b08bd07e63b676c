"""Figures 1 to 24 of Wu et al. 2025: which cells they need, and what is drawn and written of trained ones."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from answers import as_json, faults
from hypothesis import given
from hypothesis import strategies as st
from trained_networks import PAIRED, depth_outcomes, gaps_of, outcome, pairs

from posbias.core.errors import InvalidValueError, OutputFileError
from posbias.core.formats import dump_json
from posbias.profiles.claims import signed_text
from posbias.reports.answers.experiments import GapAgreement
from posbias.reports.plots import picture_bytes
from posbias.theory.masks import Causal, Full, Prefix, SlidingWindow
from posbias.training.kernels import agreement
from posbias.training.results import load_cell
from posbias_papers.cli.answers import PaperWu2025
from posbias_papers.pages import Page
from posbias_papers.statements import STATEMENTS
from posbias_papers.theorems import claims_of_statement
from posbias_papers.wu2025 import FULL, QUICK, STUDIES, Effort, Setting, outcome_of, reproduce
from posbias_papers.wu2025.outcomes import PAIRS
from posbias_papers.wu2025.pages import data
from posbias_papers.wu2025.settings import DEEP, DEPTHS
from posbias_papers.wu2025.table import _above_even, table

REPEATED = ((4, 13), (5, 14), (3, 15), (6, 16), (7, 17), (8, 18), (9, 20), (10, 21), (11, 22), (12, 23))
"""Figures, and those that repeat them with a fixed vocabulary."""
BESIDE = ("curves", "observed-sinks", "masks", "normalisers", "anisotropy")
"""Studies that no figure shows."""


# --- which cells -------------------------------------------------------------------------------------------


def test_every_number_is_a_figure_or_the_caption_of_others():
    assert [*STUDIES] == ["table1", *(f"fig{number}" for number in range(1, 25)), *BESIDE]
    captions = {name: [part.name for part in study.parts] for name, study in STUDIES.items() if study.parts}
    assert captions == {"fig19": ["fig15", "fig16", "fig17", "fig18"], "fig24": ["fig21", "fig22", "fig23"]}
    assert not any(STUDIES[name].claims or STUDIES[name].draw for name in captions)
    assert STUDIES.find(["fig24", "fig3"]) == ["fig3", "fig21", "fig22", "fig23"]
    assert STUDIES.find("all") == [name for name, study in STUDIES.items() if not study.parts]


def test_every_claim_has_the_id_of_its_place_and_what_is_repeated_is_counted_once():
    claims = {claim.id: claim for study in STUDIES.values() for claim in study.claims}
    assert len(claims) == sum(len(study.claims) for study in STUDIES.values())
    for name, study in STUDIES.items():
        assert all(claim.id.startswith(f"wu2025/{name}/") for claim in study.claims)
    again = {id: claim.alias_of for id, claim in claims.items() if claim.alias_of}
    assert again["wu2025/fig4/3"] == "wu2025/fig2/3"
    assert len(again) == 13
    for id, other in again.items():
        assert not claims[other].alias_of
        assert claims[id].provenance == claims[other].provenance


@pytest.mark.parametrize("effort", [QUICK, FULL], ids=lambda effort: effort.name)
def test_every_setting_is_one_valid_experiment(effort):
    settings = {setting for study in STUDIES.values() for setting in study.cells}
    experiments = {effort.experiment(setting) for setting in settings}
    assert len(experiments) == len(settings) == 130
    assert {one.seeds for one in experiments} == {effort.seeds}
    if effort is FULL:
        assert {(one.iterations, len(one.seeds)) for one in experiments} == {(100_000, 5)}


def test_the_vocabulary_figures_repeat_the_others():
    for number, again in REPEATED:
        settings = [replace(one, inputs="fixed_vocabulary") for one in STUDIES[f"fig{number}"].cells]
        assert settings == list(STUDIES[f"fig{again}"].cells)


def test_what_the_figures_vary_and_share():
    fig2, fig4, fig5, fig9, fig10 = (set(STUDIES[f"fig{n}"].cells) for n in (2, 4, 5, 9, 10))
    assert fig4 < fig2
    assert fig9 == fig10 < fig2
    assert {(s.depth, s.residual, s.positional, s.mask) for s in fig2} == {
        (depth, residual, word, Causal())
        for depth in DEPTHS
        for residual in (False, True)
        for word in ("none", "decay", "rope")
    }
    assert {s.depth for s in fig5} == set(DEEP)
    assert {(s.mask, s.positional) for s in STUDIES["fig3"].cells} == {
        (mask, word) for mask in (Full(), Causal()) for word in ("none", "sinusoidal", "rope")
    }
    asked = {n: {s.task.answers for s in STUDIES[f"fig{n}"].cells} for n in (3, 6, 7, 8)}
    assert asked == {3: {(0, 7)}, 6: {(0,)}, 7: {(4,)}, 8: {(7,)}}
    assert [s.mask for s in STUDIES["fig11"].cells] == [SlidingWindow(w) for w in (5, 9, 13)] * 2
    assert [s.mask for s in STUDIES["fig12"].cells] == [Prefix(k) for k in (2, 4, 6)] * 2


def test_the_masks_of_figure_1_are_drawn_without_training(tmp_path):
    done = reproduce("fig1", out=tmp_path)
    assert [path.suffix for path in done.written] == [".svg", ".png", ".md", ".json", ".csv"]
    assert [claim.verdict for claim in done.claims["fig1"]] == ["holds"]
    assert not (tmp_path / "cells").exists()
    assert not faults(json.loads(dump_json(PaperWu2025.of(**done.as_dict()).as_json())))


def test_table_1_leads_from_each_observation_to_claims_that_are_there(tmp_path):
    done = reproduce("table1", out=tmp_path)
    rows = json.loads((tmp_path / "table1.json").read_text())["rows"]
    known = {claim.id for study in STUDIES.values() for claim in study.claims}
    known |= {claim.id for one in STATEMENTS for claim in claims_of_statement(one)}
    causal, decay, both, sinks, lost = ({*row["claims"]} for row in rows)
    assert causal | decay | both | sinks | lost <= known
    assert {"wu2025/theorem-4.1", "wu2025/fig3/2"} <= causal
    assert {"wu2025/lemma-4.6"} <= decay - {"wu2025/theorem-4.5"}
    assert {"wu2025/theorem-4.7", "wu2025/fig2/9"} <= both
    assert {"wu2025/theorem-4.3", "wu2025/fig12/3"} <= sinks - lost
    assert [row[0] for row in done.table()[1]] == [row["observation"] for row in rows]


def test_a_setting_says_what_it_is():
    shown = str(Setting(4, False, SlidingWindow(9), "decay", ("first", "last"), "fixed_vocabulary"))
    assert shown == "window 9, decay, depth 4, no residual, trained on first and last, fixed vocabulary"


# --- the table ---------------------------------------------------------------------------------------------


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
    setting = Setting()
    one = outcome(setting, replace(gaps_of(pairs(0.1, 0.2, 0.1)), accuracy=np.array([0.6, 0.05, 0.6])))
    frame = table({setting: one}, [setting])
    assert frame.index.get_level_values("network").tolist() == [0, 1, 2]
    assert np.isnan(frame["first_last"]).tolist() == [False, True, False]
    np.testing.assert_array_equal(frame["first_last"].iloc[[0, 2]], one.gaps.gaps["first-last"][[0, 2]])
    assert frame["sink"].iloc[0] == one.sinks.trained[0, 0]


# --- what is drawn -----------------------------------------------------------------------------------------


PANELS = {
    "fig2": 12,
    "fig3": 4,
    "fig5": 6,
    "curves": 12,
    "anisotropy": 2,
    "fig9": 4,
    "fig10": 2,
    "fig11": 6,
    "masks": 2,
    "normalisers": 1,
}
SLOW = ("fig2", "fig5", "fig11", "curves")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PANELS]
)
def test_a_figure_shows_its_panels_with_a_short_caption(name):
    from matplotlib.text import Text

    study = STUDIES[name]
    outcomes = (
        depth_outcomes(study)
        if name in (*PAIRED, "fig2", "fig5", "curves")
        else {setting: outcome(setting, gaps_of(pairs(0.1, 0.1, 0.0))) for setting in study.cells}
    )
    if name == "fig9":  # as on record, without the weights that attention of one sequence needs
        outcomes = {s: replace(one, trained=replace(one.trained, weights={})) for s, one in outcomes.items()}
    frame = study.table(outcomes)
    note = study.note(frame)
    picture = study.draw(frame, note)
    assert len(picture.axes) == PANELS[name]
    assert len(note.split()) <= 25
    assert note[:20] in "\n".join(text.get_text() for text in picture.findobj(Text))
    first, second = (picture_bytes(study.draw(frame, note), "svg") for _ in range(2))
    assert first == second


def test_the_page_has_a_row_for_every_cell():
    study = STUDIES["fig4"]
    frame = study.table(outcomes := depth_outcomes(study))
    page = Page("", study.note(frame), tuple(study.tables(frame)), study.judged(frame)).markdown()
    for setting, one in outcomes.items():
        assert f"| {setting} | {signed_text(one.gaps.of('first-middle').mean())}" in page
    assert [row["pair"] for row in data(frame)["cells"]] == [*PAIRS] * len(outcomes)


# --- the whole ---------------------------------------------------------------------------------------------

BRIEF = Effort("brief", (0, 1), {2: 6}, 40)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wu2025")
    return folder, reproduce(["fig9", "fig10"], out=folder, effort=BRIEF, workers=1)


def test_figures_are_trained_drawn_and_written(made):
    folder, result = made
    written = {f"{name}.{kind}" for name in ("fig9", "fig10") for kind in ("svg", "png", "md", "json", "csv")}
    assert {path.name for path in folder.iterdir() if path.is_file()} == written
    assert {path.name for path in result.written} == written
    assert len(list((folder / "cells").glob("*.nc"))) == 2
    for one in result.results.values():
        example = one.example
        assert example.shape == one.attention.shape[1:]
        np.testing.assert_allclose(example.sum(axis=-1), 1, atol=1e-5)
    frame = result.made["fig9"].table
    assert len(STUDIES["fig9"].draw(frame, "").axes) == 8
    about = json.loads((folder / "fig10.json").read_text())
    verdicts = [claim.verdict for claim in result.claims["fig10"]]
    # thirty iterations teach nothing
    assert [claim["verdict"] for claim in about["claims"]] == verdicts == ["undecided"]
    answer = json.loads(dump_json(result.as_dict()))
    assert not faults(json.loads(dump_json(PaperWu2025.of(**answer).as_json())))
    stamps = {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}
    after = reproduce("fig10", out=folder, effort=BRIEF, workers=1)
    assert {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()} == stamps
    assert [claim.verdict for claim in after.claims["fig10"]] == verdicts


def test_every_cell_has_what_rollouts_predict_of_it(made, monkeypatch, tmp_path):
    monkeypatch.setattr("posbias_papers.wu2025.outcomes.LEARNT", 0.0)
    shutil.copytree(made[0] / "cells", tmp_path / "cells")
    result = reproduce("fig10", out=tmp_path, effort=BRIEF, workers=1)
    about = json.loads((tmp_path / "fig10.json").read_text())
    for path in sorted((tmp_path / "cells").glob("*.nc")):
        cell = load_cell(path)
        found = agreement(cell.rollout, cell.evaluation)
        (setting,) = (s for s in result.results if s.network == cell.experiment.network)
        expected = {name: as_json(GapAgreement.of(one)) for name, one in found.items()}
        assert about["predicted"][str(setting)] == json.loads(json.dumps(expected))
        assert {"own kernels, attention only", "theory"} <= {one.label for one in found.values()}


def test_rollouts_are_held_against_networks_that_have_learnt_only(made):
    cell = load_cell(min((made[0] / "cells").glob("*.nc")))

    def outcome_at(*accuracy: float):
        learnt = replace(cell.evaluation.in_context_accuracy, values=np.array(accuracy))
        return outcome_of(replace(cell, evaluation=replace(cell.evaluation, in_context_accuracy=learnt)))

    for one in outcome_at(0.6, 0.05).agreements.values():
        assert {estimate.n for estimate in (*one.predicted.values(), *one.measured.values())} == {1}
    for one in outcome_at(0.05, 0.05).agreements.values():
        assert {*one.signs.values(), *one.orders.values()} == {"undecided"}


def test_wrong_names_and_folders_are_refused_first(tmp_path):
    with pytest.raises(InvalidValueError, match=r"^figure: .*did you mean"):
        reproduce("fig25", out=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFileError, match="is no folder"):
        reproduce("fig2", out=tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
