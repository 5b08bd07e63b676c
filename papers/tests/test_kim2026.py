"""Kim et al.'s figures: laid out as in the paper, drawn from cells that are kept, checked against its numbers."""

import csv
import dataclasses
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from answers import plain
from cyclopts import App, UnknownCommandError

from posbias.core.errors import InvalidValueError, OutputFileError
from posbias.core.formats import JsonCodec
from posbias.core.progress import Event
from posbias.core.store import Store
from posbias.simulation import InterruptedSimulation, RecencyModel, simulate_recency
from posbias_papers import kim2026
from posbias_papers.cli import paper
from posbias_papers.closed_forms.layernorm import key_factors, log_key_factors
from posbias_papers.kim2026.figures import ALPHAS, FOUR, models, printed_numbers
from posbias_papers.kim2026.table import recorded, table
from posbias_papers.simulation.cell import RecencyCell

SAMPLES = 20_000
SMALL = RecencyModel(tokens=4, depth=2)
MANY = {"threads": 1, "samples": SAMPLES}


def gather(models, folder, *, samples, seed=0, threads=1, again=False, on_event=None):
    """The simulations of some models, by model, kept in a folder."""
    return kim2026._simulated(models, Store(folder), samples, seed, threads, again, on_event)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kim2026")


@pytest.fixture(scope="module")
def results(folder):
    """The simulations behind all figures."""
    models = dict.fromkeys(model for study in kim2026.STUDIES.values() for model in study.cells)
    return gather(models, folder / "cells", **MANY)


@pytest.fixture
def no_draws(monkeypatch):
    """No simulation may run."""

    def refuse(*_, **__):
        raise AssertionError("samples were drawn")

    monkeypatch.setattr("posbias.simulation.simulate_recency", refuse)


def command(*words):
    app = App()
    app.command(paper)
    app(["paper", *map(str, words)], exit_on_error=False, result_action="return_value")


# --- figures -----------------------------------------------------------------------------------------------


def draw(results, name, **options):
    study = kim2026.STUDIES[name]
    return study.draw(table({model: results[model] for model in study.cells}), "caption", **options)


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
    by_anisotropy = [{"anisotropy": alpha, "residual": name == "fig6"} for alpha in ALPHAS]
    rows_shown = by_anisotropy if rows == 5 else FOUR
    axes = draw(results, name).axes
    assert len(axes) == 4 * rows
    assert [ax.texts[0].get_text() for ax in axes[:4]] == heads
    for place, ax in enumerate(axes):
        dimension, layer = re.fullmatch(r"d = (\d+), layer (\d)", heads[place % 4]).groups()
        model = RecencyModel(dimension=int(dimension), **rows_shown[place // 4])
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
    axes = draw(results, "fig1").axes
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
    axes = draw(results, name, reading=reading).axes
    assert [ax.get_title() for ax in axes] == ["d = 16", "d = 64", "", ""]
    assert [ax.get_ylabel() for ax in axes] == ["h(j)"] * 2 + ["h(j) / h(0)"] * 2
    for ax, d in zip(axes[:2], (16, 64), strict=True):
        solid = [line for line in ax.lines if line.get_linestyle() == "-" and len(line.get_xdata())]
        for line, alpha in zip(solid, ALPHAS, strict=True):
            expected = key_factors(10, d, alpha, residual=residual, reading=reading)
            np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-14)
        assert not ax.containers
    for ax, d in zip(axes[2:], (16, 64), strict=True):
        solid = [line for line in ax.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 10]
        for line, alpha in zip(solid, ALPHAS, strict=True):
            expected = np.exp(log_key_factors(10, d, alpha, residual=residual, reading=reading))
            np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-14)
        # no points at α = 0, d = 64, where so few samples do not tell S_i0 from 0
        assert len(ax.containers) == 5
        drawn = [container[0].get_xdata().tolist() for container in ax.containers]
        assert drawn[1:] == [list(range(1, 9))] * 4
        assert drawn[0] == ([] if d == 64 else list(range(1, 9)))


def test_anisotropies_can_be_chosen(tmp_path):
    chosen = (0.0, 0.4, 0.8)
    made = kim2026.reproduce(["fig2", "fig6"], out=tmp_path, samples=2000, threads=1, alphas=chosen)
    assert {model.anisotropy for model in made.results} == {*chosen}
    assert len(made.results) == 2 * 2 * 3
    rows = list(csv.DictReader((tmp_path / "fig2.csv").read_text().splitlines()))
    assert {float(row["anisotropy"]) for row in rows} == {*chosen}
    for row in rows:
        if row["key"] == "0" and row["published_factor"]:
            assert float(row["published_factor"]) == pytest.approx(1 / math.sqrt(float(row["dimension"])))
    data = json.loads((tmp_path / "fig2.json").read_text())
    assert {claim["id"] for claim in data["claims"]} >= {f"kim2026/fig2/{k}" for k in (1, 10)}


@pytest.mark.parametrize("alphas", [(), (0.0,), (0.2, 0.5), (0.0, 0.5, 0.5), (0.0, 0.5, 0.4), (0.0, 1.0)])
def test_anisotropies_that_cannot_be_shown_are_refused(alphas, tmp_path, no_draws):
    with pytest.raises(InvalidValueError, match=r"^alphas: "):
        kim2026.reproduce("fig5", out=tmp_path, alphas=alphas)


def ratios_of(result):
    """S(9, j)/S(9, 0) of layer 2 and the standard error, by key."""
    rows = table({result.model: result}).xs((2, 9.0), level=["layer", "query"])
    return rows["ratio"].to_numpy(), rows["ratio_se"].to_numpy()


def test_ratios_are_those_of_mean_scores(results):
    result = results[RecencyModel(dimension=16, anisotropy=0.75)]
    (ratios, errors), scores = ratios_of(result), result.mean_scores.value[1, -1]
    np.testing.assert_allclose(ratios[:-1], (scores / scores[0])[:-1], atol=0.006)
    assert ratios[0] == 1.0
    assert errors[0] == 0.0
    assert np.isnan(ratios[-1])


def test_errors_of_ratios_are_no_smaller_than_their_spread():
    model = RecencyModel(dimension=16, anisotropy=0.25)
    made = [ratios_of(simulate_recency(model, 2048, seed=s, threads=1)) for s in range(60)]
    spread = np.std([ratios[1:-1] for ratios, _ in made], axis=0, ddof=1)
    said = np.mean([errors[1:-1] for _, errors in made], axis=0)
    # 60 draws know a spread to 9 %; the bound is within a small factor of it
    assert (said > 0.75 * spread).all()
    assert (said < 6.0 * spread).all()


def test_a_figure_is_written_with_its_tables(results, folder, no_draws):
    made = kim2026.reproduce("fig2", out=folder, **MANY)
    assert [path.name for path in made.figures] == ["fig2.svg", "fig2.png"]
    assert all(path.stat().st_size > 10_000 for path in made.figures)
    assert list(made.results) == list(kim2026.STUDIES["fig2"].cells)
    assert [path.name for path in made.files] == ["fig2.md", "fig2.json", "fig2.csv"]
    rows = list(csv.DictReader((folder / "fig2.csv").read_text().splitlines()))
    layers = [row for row in rows if row["recency"]]
    assert len(layers) == 4 * len(made.results)
    for row in layers:
        fields = {
            "norm": row["norm"],
            "anisotropy": float(row["anisotropy"]),
            "residual": row["residual"] == "True",
        }
        result = results[RecencyModel(dimension=int(row["dimension"]), **fields)]
        expected = result.recency_probability[int(row["layer"]) - 1]
        assert float(row["recency"]) == pytest.approx(expected.value, rel=1e-8)
        assert float(row["recency_se"]) == pytest.approx(expected.se, rel=1e-8)


# --- printed numbers ---------------------------------------------------------------------------------------


def test_the_printed_numbers_hold():
    found = {model: simulate_recency(model, 300_000, seed=5, threads=1) for model in models(FOUR)}
    numbers = [*printed_numbers(table(found))]
    assert [one["printed"] for one in numbers] == [0.5015, 0.5000, 0.6382, 0.5544, 0.5931, 0.5457]
    assert all(one["holds"] for one in numbers)
    # sharp enough to notice the models below
    assert max(one["se"] for one in numbers) < 0.0002


@pytest.mark.parametrize(
    "wrong", [{"norm": "rmsnorm"}, {"anisotropy": 0.505}, {"residual": True}, {"dimension": 17}]
)
def test_a_wrong_model_is_noticed(wrong):
    right = RecencyModel(dimension=16, anisotropy=0.5)
    drawn = simulate_recency(dataclasses.replace(right, **wrong), 300_000, threads=1)
    (one,) = printed_numbers(table({right: dataclasses.replace(drawn, model=right)}))
    assert (one["printed"], one["holds"]) == (0.6382, False)


# --- cells -------------------------------------------------------------------------------------------------


def test_a_cell_comes_back_as_it_was(tmp_path):
    result = simulate_recency(SMALL, 5000, seed=3, threads=1)
    Store(tmp_path).save(RecencyCell(SMALL, 3), result, amount=5000)
    back = Store(tmp_path).find(RecencyCell(SMALL, 3), at_least=5000).result
    for name in ("mean", "squares", "products"):
        assert getattr(back.tally, name).tobytes() == getattr(result.tally, name).tobytes()
    assert (back.model, back.seed, back.engine, back.samples) == (SMALL, 3, "gram", 5000)
    assert str(plain(back)) == str(plain(result))


def test_a_cell_is_used_again_for_no_more_samples(tmp_path, monkeypatch):
    drawn = []

    def counted(model, samples, **settings):
        drawn.append(samples)
        return simulate_recency(model, samples, **settings)

    monkeypatch.setattr("posbias.simulation.simulate_recency", counted)
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
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(after) == len(before) + 1
    assert after.items() >= before.items()
    assert gather([SMALL], tmp_path, samples=4096, threads=1)[SMALL].samples == 4096  # the newest counts


def _one_digit(path):
    text = path.read_text()
    at = text.index("0.", text.index('"mean"')) + 6
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])


def _another_model(path):
    model = RecencyModel(tokens=4, depth=2, residual=True)
    other = Store(path.parent / "other").save(RecencyCell(model), simulate_recency(model, 4096, threads=1))
    path.write_bytes(other.path.read_bytes())


def _fewer_moments(path):
    header, content = JsonCodec().read(path, "recency_cell", 2)
    JsonCodec().write(path, header, content | {"mean": content["mean"][:1]})


def _other_json(path):
    path.write_text('{"profile": [1, 2]}')


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_one_digit, "digest"),
        (_another_model, "another cell"),
        (_fewer_moments, "mean are not as many"),
        (_other_json, "holds no posbias result"),
    ],
)
def test_a_cell_that_cannot_be_used_is_named_and_drawn_anew(tmp_path, spoil, said, caplog):
    right = gather([SMALL], tmp_path, samples=4096, threads=1)[SMALL]
    (path,) = tmp_path.iterdir()
    spoil(path)
    again = gather([SMALL], tmp_path, samples=4096, threads=1)[SMALL]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert said in warning
    assert str(path) in warning
    assert again.tally.mean.tobytes() == right.tally.mean.tobytes()
    assert Store(tmp_path).find(RecencyCell(SMALL), at_least=4096) is not None
    assert len(caplog.records) == 1


def test_an_interruption_loses_the_running_cell_alone(tmp_path, monkeypatch):
    models = [RecencyModel(tokens=4, depth=2, dimension=d) for d in (8, 16, 32)]
    with monkeypatch.context() as patch:

        def interrupted(model, samples, **settings):
            if model.dimension == 32:
                raise InterruptedSimulation(simulate_recency(model, 512, threads=1))
            return simulate_recency(model, samples, **settings)

        patch.setattr("posbias.simulation.simulate_recency", interrupted)
        with pytest.raises(KeyboardInterrupt, match="2 of 3 cells are kept in"):
            gather(models, tmp_path, samples=2048, threads=1)
    assert len(list(tmp_path.iterdir())) == 2
    seen = []
    gather(models, tmp_path, samples=2048, threads=1, on_event=seen.append)
    assert seen[-1] == Event(2048, 2048, "sample")
    assert len(list(tmp_path.iterdir())) == 3


def test_progress_counts_the_samples_of_missing_cells(tmp_path):
    models = [RecencyModel(tokens=4, depth=1, dimension=d) for d in (8, 16, 32)]
    gather(models[1:2], tmp_path, samples=4096, threads=1)
    seen = []
    gather(models, tmp_path, samples=4096, threads=1, on_event=seen.append)
    assert {event.total for event in seen} == {8192}
    assert [event.done for event in seen] == sorted(event.done for event in seen)
    assert seen[-1].done == 8192


# --- the command -------------------------------------------------------------------------------------------


def test_the_command_prints_the_table_and_the_printed_numbers(results, folder, no_draws, capsys, caplog):
    caplog.set_level("INFO", "posbias")
    command("kim2026", "fig7", "--effort", "2e4", "--out", folder)
    out, _ = capsys.readouterr()
    assert re.search(r"^LayerNorm, α = 0.5, residual +16 +0\.\d+ ± ", out, re.M)
    assert f"file: {folder / 'fig7.svg'}" in out
    assert "drawing fig7 …" in caplog.messages
    assert re.search(r"^  holds: \(closed form, as printed\) h rises from key to key", out, re.M)
    assert f"file: {folder / 'fig7.md'}" in out


@pytest.mark.parametrize(
    ("words", "samples"),
    [([], 1_000_000), (["--effort", "quick"], 1_000_000), (["--effort", "full", "--rerun"], 10**7)],
)
def test_an_effort_is_so_many_samples(words, samples, folder, monkeypatch):
    def stop(models, store, samples, *_):
        raise InvalidValueError(f"{samples} samples wanted")

    monkeypatch.setattr(kim2026, "_simulated", stop)
    with pytest.raises(InvalidValueError, match=f"^{samples} samples"):
        command("kim2026", "section3", *words, "--out", folder)


def test_the_papers_effort_is_drawn_from_what_is_on_record(tmp_path, no_draws, capsys):
    command("kim2026", "section3", "--effort", "full", "--out", tmp_path, "--json")
    answer = json.loads(capsys.readouterr().out)
    assert {cell["samples"] for cell in answer["cells"]} == {10**7}
    assert all(one["holds"] for one in answer["published"])
    kept = {claim["id"]: claim["verdict"] for claim in answer["claims"]["section3"]}
    assert len(kept) == 13
    assert set(kept.values()) == {"holds"}
    assert not (tmp_path / "cells").exists()


@pytest.mark.slow
def test_what_is_on_record_is_what_is_simulated():
    """The first columns of one model again, with fewer samples: within five standard errors."""
    model = models(FOUR[2])[0]
    kept, again = recorded([model]), table({model: simulate_recency(model, 300_000, seed=1, threads=1)})
    for column in ("recency", "score", "step"):
        one = kept[[column, f"{column}_se"]].dropna().to_numpy()
        other = again.loc[kept.index][[column, f"{column}_se"]].dropna().to_numpy()
        off, error = np.abs(one[:, 0] - other[:, 0]), np.hypot(one[:, 1], other[:, 1])
        assert (off <= 5 * error + 1e-9).all(), column


def test_several_figures_are_made_at_once(results, folder, no_draws, capsys):
    command("kim2026", "section3", "fig2", "fig2", "--effort", SAMPLES, "--out", folder, "--json")
    answer = json.loads(capsys.readouterr().out)
    assert list(answer["claims"]) == ["fig2", "section3"]
    assert answer["figures"] == [str(folder / "fig2.svg"), str(folder / "fig2.png")]
    assert [path.rsplit("/", 1)[1] for path in answer["files"]] == [
        "fig2.md",
        "fig2.json",
        "fig2.csv",
        "section3.md",
        "section3.json",
        "section3.csv",
    ]


def test_the_command_answers_in_json(results, folder, no_draws, capsys):
    command("kim2026", "fig2", "--effort", SAMPLES, "--out", folder, "--json", "--reading", "published")
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
        (["kim2026", "fig8"], "^figure: "),
        (["kim2026", "fig1", "section4"], "did you mean 'section3'"),
        (["kim2026", "claims", "fig1"], "^what: "),
        (["kim2026", "fig1", "--effort", "0"], "effort: 0 given, an integer ≥ 1 needed"),
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
    figures = (f"fig{number}" for number in range(1, 8))
    assert kim2026.STUDIES.find("all") == [*figures, "section3"]


def test_nothing_heavy_is_loaded_before_it_is_needed():
    code = "import sys, posbias_papers.kim2026; print({'matplotlib', 'xarray', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
