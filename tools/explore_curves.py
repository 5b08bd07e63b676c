"""The measured curves that come with the page of `posbias explore`.

python tools/explore_curves.py FOLDER       write curves.json; FOLDER keeps the measurements

Every tiny model is measured on the bundled text, a minute each on one core, and Gemma 3 270M, whose terms are to
be accepted before (`posbias models --fetch gemma-3-270m --accept-terms`); SmolLM2's measurement is bundled.
"""

import sys
from pathlib import Path
from typing import Any

from posbias.core.formats import save_json
from posbias.core.packages import bundled
from posbias.measurement import measure
from posbias.profiles.measurements import load_measurement, save_measurement
from posbias.profiles.profile import measured_influence

PLACE = Path(__file__).parents[1] / "src" / "posbias" / "reports" / "explore"
TOKENS, PROMPTS, DIGITS, GEMMA = 256, 32, 5, "gemma-3-270m"


def curve(measurement: Any) -> dict[str, Any]:
    """Influence by position to five digits, with the model, its checksum and what was measured."""
    about = measurement.attrs
    mass = [float(f"{value:.{DIGITS - 1}e}") for value in measured_influence(measurement).mass]
    return {"model": about["model"], "checksum": about["checksum"], "text": about["text"]} | {
        "prompts": measurement.sizes["prompt"],
        "mass": mass,
    }


def main(folder: Path) -> None:
    """Measure what FOLDER does not have, and write the curves."""
    curves = [curve(load_measurement("smollm2-135m"))]
    for model in (GEMMA, *sorted(bundled())):
        file = folder / f"{model}.nc"
        if not file.exists():
            save_measurement(measure(model, tokens=TOKENS, prompts=PROMPTS), file)
        curves.append(curve(load_measurement(file)))
    save_json({"curves": curves}, PLACE / "curves.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
