"""Frames a second of the page of `posbias explore` while λ is dragged, in the browser, and its largest error.

A frame moves the slider, sweeps the final profile (in short texts those after 1, 2, 4, … layers too) and draws
both charts; a browser without a screen asks for 60 a second at most. Beside it: what the script takes of one.
"""

import numpy as np
import pytest
from browser import browser  # noqa: F401

from posbias.reports.explore.page import page
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.mixing import ConstantMixing
from posbias.theory.positional import ALiBi
from posbias.theory.rollout import influence

TOKENS = (256, 1024, 4096)
FRAMES = 120
RESULTS: dict[int, dict[str, float]] = {}
DRAG = """frames => new Promise(done => {
  const slider = document.getElementById("schedule-times-range");
  const begun = performance.now();
  let drawn = 0;
  const frame = () => {
    if (drawn === frames) {
      const rate = (1000 * frames) / (performance.now() - begun);
      const started = performance.now();
      for (let k = 0; k < 20; k++) page.draw();
      done({ rate, busy: (performance.now() - started) / 20 });
      return;
    }
    drawn += 1;
    slider.value = String(1 + (drawn % 399));
    slider.dispatchEvent(new Event("input"));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""


@pytest.mark.parametrize("tokens", TOKENS)
def test_frames_a_second(browser, tmp_path, tokens):  # noqa: F811
    path = tmp_path / "page.html"
    path.write_text(page(), encoding="utf-8")
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    tab = context.new_page()
    tab.goto(f"{path.as_uri()}#depth=32&heads=32&tokens={tokens}&schedule=constant&schedule.times=0.3")
    tab.wait_for_selector("html[data-settled=yes]", state="attached")
    architecture = Architecture(32, (Layer(32, positional=ALiBi()),), ConstantMixing(0.3))
    truth = influence(architecture, tokens).mass
    error = float(np.max(np.abs(np.array(tab.evaluate("page.profile")) / truth - 1)))
    RESULTS[tokens] = tab.evaluate(DRAG, FRAMES) | {"error": error, "bytes": path.stat().st_size}
    context.close()
    assert error < 1e-9
