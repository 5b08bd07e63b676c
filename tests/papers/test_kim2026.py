"""Kim et al.'s figures: laid out as in the paper, drawn from cells that are kept, checked against its numbers."""

import csv
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from cyclopts import App, UnknownCommandError

from posbias import __version__
from posbias.cli.papers import paper
from posbias.errors import InputFileError, InvalidValueError, OutputFileError
from posbias.papers import cells, find_figures, kim2026
from posbias.papers.cells import cell_path, find_cell, gather, load_cell, save_cell
from posbias.papers.kim2026.table import PUBLISHED, check_published
from posbias.simulate import InterruptedSimulation, RecencyModel, simulate_recency
from posbias.theory.layernorm import log_key_factors

SAMPLES = 20_000
SMALL = RecencyModel(tokens=4, depth=2)
MANY = {"threads": 1, "samples": SAMPLES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kim2026")


@pytest.fixture(scope="module")
def results(folder):
    """The simulations behind all figures."""
    models = dict.fromkeys(model for figure in kim2026.FIGURES.values() for model in figure.models)
    return gather(models, folder / "cells", **MANY)


@pytest.fixture
def no_draws(monkeypatch):
    """No simulation may run."""

    def refuse(*_, **__):
        raise AssertionError("samples were drawn")

    monkeypatch.setattr(cells, "simulate_recency", refuse)


def command(*words):
    app = App()
    app.command(paper)
    app(["paper", *map(str, words)], exit_on_error=False, result_action="return_value")


# --- figures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rows", "heads"),
    [
        ("fig1", 4, ["d = 16, layer 1", "d = 16, layer 2", "d = 64, layer 1", "d = 64, layer 2"]),
        ("fig3", 4, ["d = 16, layer 3", "d = 16, layer 4", "d = 64, layer 3", "d = 64, layer 4"]),
        ("fig4", 4, ["d = 256, layer 1", "d = 256, layer 2", "d = 1024, layer 1", "d = 1024, layer 2"]),
        ("fig5", 5, ["d = 16, layer 1", "d = 16, layer 2", "d = 64, layer 1", "d = 64, layer 2"]),
        ("fig6", 5, ["d = 16, layer 1", "d = 16, layer 2", "d = 64, layer 1", "d = 64, layer 2"]),
    ],
)
def test_a_heat_map_shows_the_scores_of_its_model_under_their_probability(results, name, rows, heads):
    shown = kim2026.FIGURES[name]
    axes = kim2026.draw(shown, results).axes
    assert len(axes) == 4 * rows
    assert [ax.texts[0].get_text() for ax in axes[:4]] == heads
    for place, ax in enumerate(axes):
        dimension, layer = re.fullmatch(r"d = (\d+), layer (\d)", heads[place % 4]).groups()
        model = RecencyModel(dimension=int(dimension), **shown.rows[place // 4])
        result, at = results[model], int(layer) - 1
        value, error = re.fullmatch(r"RP = (\S+) ± (\S+)", ax.get_title()).groups()
        expected = result.recency_probability[at]
        assert float(error) == pytest.approx(expected.se, rel=0.35)
        assert abs(float(value) - expected.value) <= 0.51 * 10 ** math.floor(math.log10(float(error)) + 1e-9)
        image = np.ma.filled(ax.images[-1].get_array(), np.nan)
        below = np.tri(10, k=0 if model.norm == "none" else -1, dtype=bool)
        np.testing.assert_array_equal(image[below], result.mean_scores.value[at][below])
        assert np.isnan(image[~below]).all()


def test_rows_are_named_after_their_models(results):
    axes = kim2026.draw(kim2026.FIGURES["fig1"], results).axes
    names = [axes[4 * row].texts[-1].get_text() for row in range(4)]
    assert names == [
        "no LayerNorm, α = 0",
        "LayerNorm, α = 0",
        "LayerNorm, α = 0.5",
        "LayerNorm, α = 0.5\nresidual",
    ]


@pytest.mark.parametrize("reading", ["corrected", "published"])
@pytest.mark.parametrize(("name", "residual"), [("fig2", False), ("fig7", True)])
def test_key_factors_are_drawn_in_both_readings(results, name, residual, reading):
    axes = kim2026.draw(kim2026.FIGURES[name], results, reading).axes
    assert [ax.get_title() for ax in axes] == ["d = 16", "d = 64"]
    for ax, d in zip(axes, (16, 64), strict=True):
        solid = [line for line in ax.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 10]
        for line, alpha in zip(solid, kim2026.ALPHAS, strict=True):
            expected = np.exp(log_key_factors(10, d, alpha, residual=residual, reading=reading))
            np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-14)
        # no points at α = 0, d = 64, where so few samples do not tell S_i0 from 0
        assert len(ax.containers) == 5
        drawn = [container[0].get_xdata().tolist() for container in ax.containers]
        assert drawn[1:] == [list(range(1, 9))] * 4
        assert drawn[0] == ([] if d == 64 else list(range(1, 9)))


def test_ratios_are_those_of_mean_scores(results):
    result = results[RecencyModel(dimension=16, anisotropy=0.75)]
    ratios, scores = kim2026.key_factor_ratios(result), result.mean_scores.value[1, -1]
    np.testing.assert_allclose(ratios.value[:-1], (scores / scores[0])[:-1], atol=0.006)
    assert ratios.value[0] == 1.0
    assert ratios.se[0] == 0.0
    assert np.isnan(ratios.value[-1])


def test_errors_of_ratios_are_no_smaller_than_their_spread():
    model = RecencyModel(dimension=16, anisotropy=0.25)
    made = [kim2026.key_factor_ratios(simulate_recency(model, 2048, seed=s, threads=1)) for s in range(60)]
    spread = np.std([ratios.value[1:-1] for ratios in made], axis=0, ddof=1)
    said = np.mean([ratios.se[1:-1] for ratios in made], axis=0)
    # 60 draws know a spread to 9 %; the bound is within a small factor of it
    assert (said > 0.75 * spread).all()
    assert (said < 6.0 * spread).all()


def test_a_figure_is_written_with_its_tables(results, folder, no_draws):
    made = kim2026.reproduce("fig2", out=folder, **MANY)
    assert [path.name for path in made.figures] == ["fig2.svg", "fig2.png"]
    assert all(path.stat().st_size > 10_000 for path in made.figures)
    assert list(made.results) == list(kim2026.FIGURES["fig2"].models)
    rows = list(csv.DictReader(made.table.read_text().splitlines()))
    assert len(rows) == 4 * len(results) == 4 * 30
    by_layer = {
        (
            row["norm"],
            float(row["anisotropy"]),
            int(row["dimension"]),
            row["residual"],
            int(row["layer"]),
        ): row
        for row in rows
    }
    assert len(by_layer) == len(rows)
    for model, result in results.items():
        for layer, p in enumerate(result.recency_probability, start=1):
            fields = (model.norm, model.anisotropy, model.dimension, str(model.residual), layer)
            assert float(by_layer[fields]["recency_probability"]) == p.value
            assert float(by_layer[fields]["se"]) == p.se
    saved = json.loads((folder / "table.json").read_text())
    assert [cell["model"]["dimension"] for cell in saved["cells"]] == [m.dimension for m in results]
    assert len(saved["published"]) == len(PUBLISHED)
    assert saved["version"] == __version__
    assert "2509.21042" in saved["source"]


# --- printed numbers ---------------------------------------------------------------------------------------


def test_the_printed_numbers_hold():
    models = [model for _, model in PUBLISHED]
    checks = check_published({m: simulate_recency(m, 300_000, seed=5, threads=1) for m in models})
    assert [check.printed for check in checks] == ["0.5015", "0.5000", "0.6382", "0.5544", "0.5931", "0.5457"]
    assert all(check.holds for check in checks)
    # sharp enough to notice the models below
    assert all(check.se < 0.0002 for check in checks)
    assert {check.where for check in checks} >= {"Section 3: LayerNorm, α = 0.5, residual, d = 64, layer 2"}


@pytest.mark.parametrize(
    "wrong", [{"norm": "rmsnorm"}, {"anisotropy": 0.505}, {"residual": True}, {"dimension": 17}]
)
def test_a_wrong_model_is_noticed(wrong):
    _, right = PUBLISHED[2]
    fields = {"dimension": 16, "anisotropy": 0.5} | wrong
    (check,) = check_published({right: simulate_recency(RecencyModel(**fields), 300_000, threads=1)})
    assert not check.holds


def test_the_error_is_of_the_paper_s_samples_ours_and_rounding(results):
    _, model = PUBLISHED[2]
    (check,) = check_published({model: results[model]})
    ours, plain = results[model].recency_probability[1].se, results[model].plain_recency_probability[1].se
    theirs = plain * math.sqrt(SAMPLES / 1e7)
    assert check.se**2 == pytest.approx(ours**2 + theirs**2 + 1e-8 / 12, rel=1e-12)
    assert check.deviation * check.se == pytest.approx(check.value.value - 0.6382, rel=1e-12)


# --- cells -------------------------------------------------------------------------------------------------


def test_a_cell_comes_back_as_it_was(tmp_path):
    result = simulate_recency(SMALL, 5000, seed=3, threads=1)
    back = load_cell(save_cell(result, tmp_path))
    for name in ("mean", "squares", "products"):
        assert getattr(back.tally, name).tobytes() == getattr(result.tally, name).tobytes()
    assert (back.model, back.seed, back.engine, back.samples) == (SMALL, 3, "gram", 5000)
    assert str(back.as_dict()) == str(result.as_dict())


def test_a_cell_is_used_again_for_no_more_samples(tmp_path, monkeypatch):
    drawn = []

    def counted(model, samples, **settings):
        drawn.append(samples)
        return simulate_recency(model, samples, **settings)

    monkeypatch.setattr(cells, "simulate_recency", counted)
    assert gather([SMALL], tmp_path, samples=4096, threads=1)[SMALL].samples == 4096
    assert gather([SMALL], tmp_path, samples=1000, threads=1)[SMALL].samples == 4096
    assert drawn == [4096]
    assert gather([SMALL], tmp_path, samples=5000, threads=1)[SMALL].samples == 5000
    assert gather([SMALL], tmp_path, samples=10, threads=1)[SMALL].samples == 5000
    assert drawn == [4096, 5000]
    assert gather([SMALL], tmp_path, samples=10, seed=1, threads=1)[SMALL].seed == 1
    assert drawn == [4096, 5000, 10]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert gather([SMALL], tmp_path, samples=4096, again=True, threads=1)[SMALL].samples == 4096
    assert drawn == [4096, 5000, 10, 4096]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def _cut(path):
    path.write_text(path.read_text()[:-40])


def _one_digit(path):
    text = path.read_text()
    at = text.index("0.", text.index('"mean"')) + 6
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])


def _emptied(path):
    path.write_bytes(b"")


def _not_text(path):
    path.write_bytes(b"\xff\xfe\x00")


def _another_model(path):
    result = simulate_recency(RecencyModel(tokens=4, depth=2, residual=True), 4096, threads=1)
    path.write_bytes(save_cell(result, path.parent / "other").read_bytes())


def _another_version(path):
    data = json.loads(path.read_text()) | {"version": "0.0.1"}
    data.pop("checksum")
    path.write_text(json.dumps({"checksum": cells._checksum(data)} | data))


def _other_json(path):
    path.write_text('{"profile": [1, 2]}')


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_cut, "JSON"),
        (_one_digit, "checksum"),
        (_emptied, "JSON"),
        (_not_text, "UTF-8"),
        (_another_model, "another cell"),
        (_another_version, "drawn by posbias 0.0.1"),
        (_other_json, "not a cell"),
    ],
)
def test_a_cell_that_cannot_be_used_is_named_and_drawn_anew(tmp_path, spoil, said):
    right = gather([SMALL], tmp_path, samples=4096, threads=1)[SMALL]
    path = cell_path(tmp_path, SMALL, 0, 4096)
    spoil(path)
    told = []
    again = gather([SMALL], tmp_path, samples=4096, threads=1, say=told.append)[SMALL]
    assert len(told) == 1
    assert said in told[0]
    assert str(path) in told[0]
    assert again.tally.mean.tobytes() == right.tally.mean.tobytes()
    assert find_cell(tmp_path, SMALL, 0, 4096, told.append) is not None
    assert len(told) == 1


def test_a_checksum_is_not_enough(tmp_path):
    path = save_cell(simulate_recency(SMALL, 100, threads=1), tmp_path)
    data = json.loads(path.read_text())
    data["mean"] = data["mean"][:1]
    data.pop("checksum")
    path.write_text(json.dumps({"checksum": cells._checksum(data)} | data))
    with pytest.raises(InputFileError, match="mean are not as many"):
        load_cell(path)


def test_an_interruption_loses_the_running_cell_alone(tmp_path, monkeypatch):
    models = [RecencyModel(tokens=4, depth=2, dimension=d) for d in (8, 16, 32)]
    with monkeypatch.context() as patch:

        def interrupted(model, samples, **settings):
            if model.dimension == 32:
                raise InterruptedSimulation(simulate_recency(model, 512, threads=1))
            return simulate_recency(model, samples, **settings)

        patch.setattr(cells, "simulate_recency", interrupted)
        with pytest.raises(KeyboardInterrupt, match=r"2 of 3 cells are kept .* 512 samples .* lost"):
            gather(models, tmp_path, samples=2048, threads=1)
    assert len(list(tmp_path.iterdir())) == 2
    seen = []
    gather(models, tmp_path, samples=2048, threads=1, progress=lambda *done: seen.append(done))
    assert seen[-1] == (2048, 2048)
    assert len(list(tmp_path.iterdir())) == 3


def test_progress_counts_the_samples_of_missing_cells(tmp_path):
    models = [RecencyModel(tokens=4, depth=1, dimension=d) for d in (8, 16, 32)]
    gather(models[1:2], tmp_path, samples=4096, threads=1)
    seen = []
    gather(models, tmp_path, samples=4096, threads=1, progress=lambda *done: seen.append(done))
    assert {wanted for _, wanted in seen} == {8192}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == 8192


# --- the command -------------------------------------------------------------------------------------------


def test_the_command_prints_the_table_and_the_printed_numbers(results, folder, no_draws, capsys):
    command("kim2026", "fig7", "--samples", "2e4", "--out", folder)
    out, err = capsys.readouterr()
    assert re.search(r"^LayerNorm, α = 0.5, residual +16 +0\.\d+ ± .* 20,000$", out, re.M)
    assert re.search(r"layer 2 +0.5931 +0\.59\d+ ± \S+ +[+-]\d\.\d\d of \S+ +(holds|fails)$", out, re.M)
    assert f"figure: {folder / 'fig7.svg'}" in out
    assert "drawing fig7" in err
    assert re.search(r"^  holds: \(closed form, as printed\) h rises from key to key", out, re.M)
    assert f"page: {folder / 'fig7.md'}" in out


@pytest.mark.parametrize(
    ("words", "samples"), [([], 1_000_000), (["--quick"], 1_000_000), (["--full"], 10**7)]
)
def test_an_effort_is_so_many_samples(words, samples, folder, monkeypatch):
    def stop(*_, samples, **__):
        raise InvalidValueError(f"{samples} samples wanted")

    monkeypatch.setattr(kim2026, "gather", stop)
    with pytest.raises(InvalidValueError, match=f"^{samples} samples"):
        command("kim2026", "section3", *words, "--out", folder)


def test_several_figures_are_made_at_once(results, folder, no_draws, capsys):
    command("kim2026", "section3", "fig2", "fig2", "--samples", SAMPLES, "--out", folder, "--json")
    answer = json.loads(capsys.readouterr().out)
    assert list(answer["claims"]) == ["fig2", "section3"]
    assert answer["figures"] == [str(folder / "fig2.svg"), str(folder / "fig2.png")]
    assert [path.rsplit("/", 1)[1] for path in answer["files"]] == [
        "fig2.md",
        "fig2.json",
        "section3.md",
        "section3.json",
    ]


def test_the_command_answers_in_json(results, folder, no_draws, capsys):
    command("kim2026", "fig2", "--samples", SAMPLES, "--out", folder, "--json", "--reading", "published")
    answer = json.loads(capsys.readouterr().out)
    assert answer["figures"] == [str(folder / "fig2.svg"), str(folder / "fig2.png")]
    assert len(answer["cells"]) == 10
    for cell in answer["cells"]:
        assert [p["layer"] for p in cell["recency_probability"]] == [1, 2, 3, 4]
        assert cell["samples"] == SAMPLES
    assert [one["printed"] for one in answer["published"]] == [0.5015, 0.5, 0.6382, 0.5544]
    assert {"where", "printed", "value", "se", "deviation", "holds"} <= set(answer["published"][0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kim2026", "figure1"], "did you mean 'fig1'"),
        (["kim2026", "fig8"], "one of fig1, .* all needed"),
        (["kim2026", "fig1", "section4"], "did you mean 'section3'"),
        (["kim2026", "fig1", "--quick", "--full"], "full: given together with --quick"),
        (["kim2026", "fig1", "--samples", "1e5", "--full"], "samples: 100,000 given together with --full"),
        (["kim2026", "fig1", "--samples", "1e5", "--quick"], "samples: 100,000 given together with --quick"),
        (["kim2026", "claims", "fig1"], "claims alone needed"),
        (["kim2026", "fig1", "--samples", "0"], "samples: 0 given"),
        (["kim2026", "fig1", "--seed", "-1"], "seed: -1 given"),
        (["kim2026", "fig1", "--threads", "0"], "threads: 0 given"),
        (["kim2026", "fig1", "--reading", "published"], "shows no closed form"),
    ],
)
def test_wrong_input_is_said_before_anything_is_drawn(words, said, tmp_path, no_draws):
    with pytest.raises(InvalidValueError, match=said):
        command(*words, "--out", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_an_unknown_paper_names_the_nearest(no_draws):
    with pytest.raises(UnknownCommandError, match='Did you mean "kim2026"'):
        command("kim2025", "fig1")


def test_a_folder_that_cannot_be_written_is_said_first(tmp_path, no_draws):
    (tmp_path / "taken").write_text("")
    with pytest.raises(OutputFileError, match="is no folder"):
        command("kim2026", "fig1", "--out", tmp_path / "taken")


def test_all_means_all():
    assert find_figures("all", kim2026.FIGURES) == tuple(f"fig{number}" for number in range(1, 8))


def test_nothing_heavy_is_loaded_before_it_is_needed():
    code = "import sys, posbias.papers.kim2026; print({'matplotlib', 'xarray', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
