"""The page of `posbias explore` in a real browser: its curves are Python's, and nothing leaves it."""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
from browser import Opened
from command import called

from posbias.reports.explore.menu import menu
from posbias.reports.explore.page import known_curves, page, tiny_architectures
from posbias.theory.configs import PRESETS, preset
from posbias.theory.rollout import influence

TOLERANCE = 1e-9
MOST_BYTES = 300_000
AXE = os.environ.get("POSBIAS_AXE", "")  # where axe.min.js of the npm package axe-core lies
MENU = menu()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Pages that begin from nothing, and from an architecture that the controls do not have."""
    folder = tmp_path_factory.mktemp("explored")
    for name, given in {"page": None, "own": preset("smollm3-3b")}.items():
        (folder / f"{name}.html").write_text(page(given, 96), encoding="utf-8")
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
    architecture = tab.architecture(folder) if architecture is None else architecture
    mass = np.array(tab.ask("profile"))
    truth = influence(architecture, len(mass))
    np.testing.assert_allclose(mass, truth.mass, rtol=TOLERANCE, atol=1e-250)
    assert tab.ask("lost") == pytest.approx(truth.missing_mass, abs=TOLERANCE)


def usable(kind: str) -> list[str]:
    return [one["key"] for one in MENU[kind] if not one.get("reason")]


MASKS = itertools.cycle(usable("masks"))
LINKS = [
    *(
        f"#tokens=80&encoding={key}&encoding.times=0.6&encoding.power=0.7&depth=4&every=3&mask={next(MASKS)}"
        "&width=12&sinks=2&length=31"
        for key in [*usable("encodings"), "alibi", "kerple_log"]
    ),
    *(
        f"#tokens=64&depth=7&schedule={key.replace(' ', '+')}&mixing.times=0.4"
        for key in usable("schedules")
        if not key.startswith("of ") or key == "of mpt-7b"
    ),
    "#tokens=64&schedule=per_layer&drawn=0.1,0.9,0.4&depth=3&encoding=t5&encoding.times=9&heads=9",
    "#tokens=64&content.diagonal=2.5&content.first=-1&content.constant=0.5&sink=1.5&encoding=rope&depth=6",
    "#tokens=64&content.constant=3&residual=off&heads=112&encoding.times=7.5&every=1",
]


def test_every_option_gives_the_curve_that_posbias_predict_gives_of_its_file(opened, tmp_path):
    for link in LINKS:
        opened.turn(link)
        agrees(opened, tmp_path)


def test_a_long_text_is_swept_and_one_with_a_table_is_held_short(opened, tmp_path):
    opened.turn("#tokens=20000&depth=3&heads=4&mask=sliding_window&width=500")
    agrees(opened, tmp_path)
    opened.turn("#tokens=20000&depth=1&encoding=kerple_log")
    assert opened.ask("state")["tokens"] == MENU["limits"]["dense"]


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
    assert (state["encoding"], state["encoded"]["times"], state["residual"]) == ("decay", 0.37, False)
    assert state["depth"] > 6
    assert opened.ask("profile") != before
    agrees(opened, tmp_path)
    with tab.expect_download() as download:
        tab.click("#save-toml")
    download.value.save_as(tmp_path / "explored.toml")
    answer = called("predict", tmp_path / "explored.toml", "--tokens", 64, "--json")
    assert answer.returncode == 0, answer.stderr
    np.testing.assert_allclose(json.loads(answer.stdout)["profile"], opened.ask("profile"), rtol=TOLERANCE)


def test_lambda_is_drawn_with_pointer_and_keyboard(opened, tmp_path):
    tab = opened.tab
    opened.turn("#tokens=48&depth=8")
    place = tab.locator("#mixing")
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    tab.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.3 * box["height"])
    tab.mouse.down()
    tab.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.3 * box["height"])
    tab.mouse.up()
    opened.settle()
    levels = opened.ask("state")["drawn"]
    assert len(levels) == 8
    assert len(set(levels[1:7])) == 1
    assert 0.4 < levels[3] < 1
    tab.focus("#mixing [tabindex='0']")
    for key in ("Home", "ArrowLeft", "End", "ArrowDown"):
        tab.keyboard.press(key)
    opened.settle()
    assert sorted(set(opened.ask("state")["drawn"]) - set(levels)) == [0, 0.99]
    agrees(opened, tmp_path)


def test_a_link_restores_what_was_chosen(opened):
    opened.turn(
        "#tokens=90&depth=9&mask=prefix&length=17&encoding=t5&content.first=2&sink=0.5&scale=share&every=4"
    )
    kept = opened.tab.evaluate("[location.hash, page.state, page.profile]")
    opened.go(kept[0])
    assert opened.tab.evaluate("[location.hash, page.state, page.profile]") == kept
    opened.turn(
        "#tokens=nonsense&depth=-3&mask=dilated&encoding=__proto__&drawn=a,b&heads=7&scale=x&sink=&nothing"
    )
    assert opened.ask("state").items() >= {"tokens": 96, "depth": 1, "mask": "causal", "heads": 16}.items()


def test_presets_give_their_prediction_and_others_say_why_not(opened, tmp_path):
    chosen = {"bloom-7b1": 60, "gemma-3-1b": 600, "smollm2-135m": 60, "tiny-window": 200}
    known = {name: preset(name) for name in chosen if name in PRESETS}
    known |= {one.name: one for one in tiny_architectures()}
    opened.turn("#")
    for name, tokens in chosen.items():
        opened.tab.select_option("#preset", name)
        opened.settle()
        opened.tab.fill("#tokens", str(tokens))
        opened.tab.press("#tokens", "Enter")
        opened.settle()
        agrees(opened, tmp_path, known[name])
        agrees(opened, tmp_path)
        shown = [one.get_attribute("value") for one in opened.tab.locator("#curves input:checked").all()]
        assert shown[-1:] == ([name] if name in {one["key"] for one in known_curves()} else shown[-1:])
    names = [one.get_attribute("value") for one in opened.tab.locator("#preset option").all()]
    assert set(names) == {"set", "", *PRESETS, *(one["key"] for one in known_curves())}
    assert "its layers differ" in opened.tab.text_content("#preset option[value=smollm3-3b]:disabled")
    for kind in ("masks", "encodings"):
        listed = opened.tab.locator(f"#{kind[:-1]} option[disabled]").all_text_contents()
        assert [f"{one['title']}: {one['reason']}" for one in MENU[kind] if one["reason"]] == listed


def test_the_layers_of_a_file_that_the_controls_do_not_have_are_swept_as_they_are(browser, written, tmp_path):
    tab = Opened(browser, written / "own.html")
    agrees(tab, tmp_path, preset("smollm3-3b"))
    agrees(tab, tmp_path)
    assert tab.tab.locator("#encoding").is_disabled()
    assert "no verdict" in tab.tab.text_content("#said")
    tab.context.close()
    assert not tab.wrong


def test_a_measurement_is_drawn_beneath(opened, tmp_path):
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({"schema": "measure/1", "model": "<b>toy</b>", "influence": [1, 2, 1, 4]}))
    broken = tmp_path / "broken.json"
    broken.write_text("[1, 2")
    opened.turn("#tokens=64")
    opened.tab.set_input_files("#measurement", answer)
    opened.tab.wait_for_selector("#profile .measured", state="attached")
    assert "<b>toy</b>" in opened.tab.text_content("#profile-legend")
    opened.tab.set_input_files("#measurement", broken)
    opened.tab.wait_for_selector("#measured-said:text('no JSON')")


def test_pictures_are_saved(opened, tmp_path):
    opened.turn("#tokens=64")
    for kind, begin in (("svg", b"<svg"), ("png", b"\x89PNG")):
        with opened.tab.expect_download() as download:
            opened.tab.click(f"#save-{kind}")
        download.value.save_as(tmp_path / kind)
        assert (tmp_path / kind).read_bytes().startswith(begin)


def test_the_page_is_small_and_lets_nothing_out(browser, written):
    assert (written / "page.html").stat().st_size < MOST_BYTES
    tab = Opened(browser, written / "page.html")
    refused = "fetch('http://127.0.0.1:9/').then(() => 'answered', () => 'refused')"
    assert tab.tab.evaluate(refused) == "refused"
    tab.context.close()
    assert any("Content Security Policy" in line for line in tab.wrong)


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1200, "dark")])
def test_the_page_fits_its_width_and_has_no_barrier(browser, written, width, scheme):
    tab = Opened(
        browser,
        written / "page.html",
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        bypass_csp=True,
    )
    try:
        assert tab.tab.evaluate("document.documentElement.scrollWidth") <= width
        if not AXE:
            pytest.skip("axe-core is not looked for: POSBIAS_AXE does not say where axe.min.js lies")
        tab.tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = true;")
        tab.tab.evaluate(Path(AXE).read_text(encoding="utf-8"))
        found = tab.tab.evaluate("axe.run().then((result) => result.violations)")
        assert not [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found]
    finally:
        tab.context.close()
