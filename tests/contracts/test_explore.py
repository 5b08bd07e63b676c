"""The page of `posbias explore` in a real browser: kernel.js gives what engines and theorems give."""

import itertools
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import architectures as drawn
import numpy as np
import pytest
from architectures import spans
from browser import Opened
from command import called
from hypothesis import assume, given
from hypothesis import strategies as st

from posbias.profiles.measurements import load_measurement
from posbias.profiles.profile import measured_influence
from posbias.reports.explore.kernel import exported, not_expressed, sweeps
from posbias.reports.explore.menu import WORDS, menu, state_of
from posbias.reports.explore.page import known_curves, page, page_data, tiny_architectures
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.configs import PRESETS, preset
from posbias.theory.content import ScalableSoftmax
from posbias.theory.masks import Prefix, SlidingWindow
from posbias.theory.mixing import ConstantMixing, TrainedMedian
from posbias.theory.positional import ALiBi, KerpleLog, RoPE
from posbias.theory.prediction import predict
from posbias.theory.rollout import influence
from posbias.theory.rollout.kernel import layer_kernel
from posbias.theory.rope_scaling import YaRN
from posbias.theory.variation import SCALINGS
from posbias_papers.closed_forms.bounds import log_collapse_bound

TOLERANCE = 1e-9
"""Relative, above 1e-250; below it both may be 0."""
ASKED = """([architecture, tokens, depth]) => {
  const { mass, lost } = window.kernel.influence(architecture, tokens, depth);
  return [Array.from(mass), lost];
}"""


@pytest.fixture(scope="module")
def tab(browser):
    """A page with the script."""
    page = browser.new_page()
    source = files("posbias.reports.explore").joinpath("kernel.js").read_text(encoding="utf-8")
    page.evaluate(f"() => {{ {source}\n window.kernel = kernel; }}")
    yield page
    page.close()


def check(mass, lost, architecture):
    """Profile and what sinks took are what the engines compute."""
    truth = influence(architecture, len(mass))
    np.testing.assert_allclose(mass, truth.mass, rtol=TOLERANCE, atol=1e-250)
    assert lost == pytest.approx(truth.missing_mass, abs=TOLERANCE)


def agree(tab, architecture, tokens):
    check(*tab.evaluate(ASKED, [exported(architecture, tokens), tokens, architecture.depth]), architecture)


@given(
    drawn.architectures(mask=spans(400, drawn.SHORTEST), scaled=True),
    st.integers(drawn.SHORTEST, drawn.LONGEST),
)
def test_the_browser_gives_the_profile_that_the_engines_give(tab, architecture, tokens):
    assume(not_expressed(architecture) is None)
    agree(tab, architecture, tokens)


@given(
    drawn.architectures(mask=spans(1000, 300), positional=drawn.exponential), st.integers(drawn.LONGEST, 1500)
)
def test_the_browser_sweeps_longer_texts_right(tab, architecture, tokens):
    assume(all(map(sweeps, architecture.layers)))
    agree(tab, architecture, tokens)


BOUNDS = "([architecture, tokens, depth]) => window.kernel.bounds(architecture, tokens, depth)"


def test_the_bounds_of_the_browser_are_those_of_the_theorems(tab):
    """Of all but the first token where every layer shows it (Wu 4.1), of the last one under every mask."""
    layers = (Layer(2, positional=ALiBi((0.01, 0.0))), Layer(2, positional=KerpleLog((0.5,))))
    for mask in (None, SlidingWindow(4), Prefix(3)):
        stack = layers if mask is None else (Layer(2, mask, ALiBi((0.2, 0.0))),)
        architecture = Architecture(6, stack, ConstantMixing(0.4))
        found = tab.evaluate(BOUNDS, [exported(architecture, 64), 64, 6])
        kernels = np.array([layer_kernel(layer, 64) for layer in architecture.stack])
        own = 1 - (1 - kernels[:, -1, -1]) * architecture.coefficients
        np.testing.assert_allclose(found["own"], np.cumprod(own), rtol=TOLERANCE)
        profile = influence(architecture, 64).mass
        assert found["own"][-1] <= profile[-1] * (1 + TOLERANCE)
        if mask is None:
            floors = kernels[:, :, 0].min(axis=1)
            expected = log_collapse_bound(floors, 1, architecture.coefficients)
            np.testing.assert_allclose(found["rest"], expected, rtol=TOLERANCE)
            assert np.log1p(-profile[0]) <= found["rest"][-1]
        else:
            assert found["rest"] is None


def test_measured_curves_are_shares_and_that_of_smollm2_is_its_measurement():
    masses = {one["key"]: one["mass"] for one in known_curves()}
    np.testing.assert_allclose([sum(mass) for mass in masses.values()], 1, atol=1e-4)
    measured = measured_influence(load_measurement("smollm2-135m")).mass
    np.testing.assert_allclose(masses["smollm2-135m"], measured, rtol=6e-5)


MOST_BYTES = 400_000
MENU = menu()
TABLES = Architecture(
    3,
    (Layer(heads=2, positional=KerpleLog((0.5, 1.0)), query_scale=ScalableSoftmax((0.3,))), Layer(heads=2)),
    ConstantMixing(0.3),
)
"""Layers by turns, one with logits as a table by distance, scaled by query."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Pages that begin from nothing, and from an architecture that the controls do not have."""
    folder = tmp_path_factory.mktemp("explored")
    for name, start in {"page": None, "own": preset("smollm3-3b"), "tables": TABLES}.items():
        (folder / f"{name}.html").write_text(page(start, 96), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def opened(browser, written):
    """The page that begins from nothing; at the end it has asked for nothing and complained of nothing."""
    tab = Opened(browser, written / "page.html")
    yield tab
    tab.context.close()
    assert not tab.wrong


def agrees(tab: Opened, folder: Path, architecture=None) -> None:
    """The page's profile is that of the engines, for the file that it offers or a given architecture."""
    check(tab.ask("profile"), tab.ask("lost"), architecture or tab.architecture(folder))


def usable(kind: str) -> list[str]:
    return [one["key"] for one in MENU[kind] if not one.get("reason")]


MASKS = itertools.cycle(usable("masks"))
LINKS = [
    *(
        f"#tokens=80&encoding={key}&encoding.times=0.6&encoding.power=0.7&depth=4&every=3&mask={next(MASKS)}"
        "&mask.width=12&mask.sinks=2&mask.length=31"
        for key in [*usable("encodings"), "alibi", "kerple_log"]
    ),
    *(
        f"#tokens=90&encoding=rope&encoding.times=0.7&depth=3&mask=prefix&mask.length=9&scaling={key}&scaling.factor={factor}"
        for key, factor in itertools.product(usable("scalings"), (3, 8))
    ),
    *(
        f"#tokens=64&depth=7&schedule={key.replace(' ', '+')}&schedule.times=0.4"
        for key in usable("schedules")
        if not key.startswith("of ") or key == "of mpt-7b"
    ),
    "#tokens=64&schedule=per_layer&drawn=0.1,0.9,0.4&depth=3&encoding=t5&encoding.times=9&heads=9",
    "#tokens=64&content.diagonal=2.5&content.first=-1&content.constant=0.5&sink=1.5&encoding=rope&depth=6",
    "#tokens=64&content.constant=3&residual=false&heads=112&encoding.times=7.5&every=1",
]


def test_every_option_gives_the_curve_that_posbias_predict_gives_of_its_file(opened, tmp_path):
    for link in LINKS:
        opened.turn(link)
        agrees(opened, tmp_path)


def test_controls_move_the_curve_and_the_file_goes_through_the_command(opened, tmp_path):
    tab = opened.tab
    opened.turn("#tokens=64&depth=6")
    before = opened.ask("profile")
    tab.select_option("#encoding", "decay")
    tab.fill("#encoding-times", "0.37")
    tab.press("#encoding-times", "Enter")
    tab.focus("#depth-range")
    tab.keyboard.press("ArrowRight")
    tab.uncheck("#residual")
    opened.settle()
    state = opened.ask("state")
    assert (state["encoding"], state["residual"], state["depth"] > 6) == ("decay", False, True)
    assert state["numbers"]["encoding.times"] == 0.37
    assert opened.ask("profile") != before
    agrees(opened, tmp_path)
    with tab.expect_download() as download:
        tab.click("#save-toml")
    download.value.save_as(tmp_path / "explored.toml")
    answer = called("predict", tmp_path / "explored.toml", "--tokens", 64, "--json")
    assert answer.returncode == 0, answer.stderr
    np.testing.assert_allclose(json.loads(answer.stdout)["profile"], opened.ask("profile"), rtol=TOLERANCE)


def test_a_link_restores_what_was_chosen(opened):
    opened.turn(
        "#tokens=90&depth=9&mask=prefix&mask.length=17&encoding=t5&content.first=2&sink=0.5&scale=share&every=4"
    )
    kept = opened.tab.evaluate("[location.hash, page.state, page.profile]")
    opened.go(kept[0])
    assert opened.tab.evaluate("[location.hash, page.state, page.profile]") == kept
    opened.turn(
        "#tokens=nonsense&depth=-3&mask=dilated&encoding=__proto__&drawn=a,b&heads=7&scale=x&sink=&nothing"
    )
    assert opened.ask("state").items() >= {"tokens": 96, "depth": 1, "mask": "causal", "heads": 16}.items()


def test_presets_give_their_prediction(opened, tmp_path):
    chosen = {"bloom-7b1": 60, "gemma-3-1b": 600, "smollm2-135m": 60, "tiny-window": 200}
    known = {name: preset(name) for name in chosen if name in PRESETS}
    known |= {one.name: one for one in tiny_architectures()}
    opened.go()
    for name, tokens in chosen.items():
        opened.tab.select_option("#preset", name)
        opened.settle()
        opened.tab.fill("#tokens", str(tokens))
        opened.tab.press("#tokens", "Enter")
        opened.settle()
        agrees(opened, tmp_path, known[name])
        agrees(opened, tmp_path)


def test_presets_are_themselves_on_a_page_that_begins_from_another():
    data = page_data(preset("gemma-3-1b"), 96, "", [])
    states = {one["key"]: data["begin"] | one.get("state", {}) for one in data["presets"]}
    assert [states[key]["every"] for key in ("own", "mistral-7b-v0.1", "")] == [6, 0, 0]
    assert states[""] == WORDS["begin"] | {"tokens": 96}


def test_the_band_is_that_of_posbias_predict_where_lambda_is_assumed(opened):
    opened.turn("#tokens=64&depth=6")
    architecture = Architecture(6, (Layer(16, positional=ALiBi()),), TrainedMedian())
    band, found = predict(architecture, 64).band, opened.ask("band")
    for end in ("low", "high"):
        np.testing.assert_allclose(found[end], getattr(band, end), rtol=TOLERANCE)
    verdicts = {one["name"]: one["verdict"] for one in found["shapes"]}
    assert verdicts == {name: band.verdicts[name] for name in (*band.models, *band.checks)}
    opened.turn("#tokens=64&depth=6&schedule=constant")
    assert opened.ask("band") is None


def test_the_layers_of_a_file_that_the_controls_do_not_have_are_swept_as_they_are(browser, written, tmp_path):
    for name, start in {"own": preset("smollm3-3b"), "tables": TABLES}.items():
        tab = Opened(browser, written / f"{name}.html")
        agrees(tab, tmp_path, start)
        agrees(tab, tmp_path)
        assert tab.tab.locator("#encoding").is_disabled()
        tab.context.close()
        assert not tab.wrong


def test_rotary_scaling_of_given_amplitudes_is_a_knob_and_without_them_the_page_says_why(
    browser, opened, tmp_path
):
    rope = RoPE(((0.4, 1.5, 0.3), (0.9,) * 3), ((0.1, 0.7, -1.2),), 500.0, 6, scaling=YaRN(4.0, 32))
    layers = (Layer(2, positional=rope, temperature=1.5), Layer(2, Prefix(5), replace(rope, base=90.0)))
    (tmp_path / "rope.html").write_text(
        page(Architecture(4, layers, ConstantMixing(0.4)), 90), encoding="utf-8"
    )
    tab = Opened(browser, tmp_path / "rope.html")
    agrees(tab, tmp_path, Architecture(4, layers, ConstantMixing(0.4)))
    for key in usable("scalings"):
        tab.turn(f"#own=true&depth=4&scaling={key}&scaling.factor=5")
        agrees(tab, tmp_path)
        held = {layer.positional.scaling for layer in tab.architecture(tmp_path).layers}
        assert held == {rope.scaling} if key == "none" else {one.kind for one in held} == {key}
    tab.context.close()
    assert not tab.wrong
    for encoding, reason in (
        ("alibi", "nothing to scale"),
        ("needs_measurement", "No configuration holds amplitudes"),
    ):
        opened.turn(f"#encoding={encoding}&scaling=yarn")
        assert opened.tab.locator("#scaling").is_disabled()
        assert reason in opened.tab.text_content("#scaling-words")


def test_an_architecture_under_a_rotary_scaling_is_what_the_controls_say():
    for name, make in SCALINGS.items():
        rope = RoPE(((0.3,),), dimension=64, scaling=make(8.0, 1024))
        state, reason = state_of(Architecture(2, (Layer(4, positional=rope),)), MENU)
        assert (reason, state.get("numbers", {}).get("scaling.factor")) == ("", 8), name


def test_the_page_is_small_and_lets_nothing_out(browser, written):
    assert (written / "page.html").stat().st_size < MOST_BYTES
    tab = Opened(browser, written / "page.html")
    refused = "fetch('http://127.0.0.1:9/').then(() => 'answered', () => 'refused')"
    assert tab.tab.evaluate(refused) == "refused"
    tab.context.close()
    assert any("Content Security Policy" in line for line in tab.wrong)
