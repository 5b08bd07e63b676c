"""The tables that come with the page of `posbias explore`: measured curves, and LayerNorm's recency.

python tools/explore_curves.py FOLDER       write curves.json and layernorm.json; FOLDER keeps the measurements

Every tiny model is measured on the bundled text, a minute each on one core; SmolLM2's measurement is bundled.
Recency is `recency_excess` at every dimension and anisotropy, a minute in all.
"""

import sys
from pathlib import Path
from typing import Any

from posbias.cli.architectures import BUNDLED
from posbias.explore.panels import ANISOTROPIES, DIMENSIONS
from posbias.extrapolation import BUNDLED as SMOLLM2
from posbias.measurement import measure
from posbias.predictors import measured_influence
from posbias.store import load_measurement, save_json, save_measurement
from posbias.theory.closed_forms.recency import recency_excess

PLACE = Path(__file__).parents[1] / "src" / "posbias" / "explore"
TOKENS, PROMPTS, DIGITS = 256, 32, 5


def curve(measurement: Any) -> dict[str, Any]:
    """Influence by position to five digits, with the model, its checksum and what was measured."""
    about = measurement.attrs
    mass = [float(f"{value:.{DIGITS - 1}e}") for value in measured_influence(measurement).mass]
    return {"model": about["model"], "checksum": about["checksum"], "text": about["text"]} | {
        "prompts": measurement.sizes["prompt"],
        "mass": mass,
    }


def recency() -> dict[str, Any]:
    """P(S_21 > S_20) of three tokens in the second layer, by anisotropy and dimension."""
    found = {
        name: [
            [round(0.5 + float(recency_excess(d, a, residual=residual).value[1]), 6) for d in DIMENSIONS]
            for a in ANISOTROPIES
        ]
        for name, residual in (("plain", False), ("residual", True))
    }
    return {"dimensions": list(DIMENSIONS), "anisotropies": list(ANISOTROPIES)} | found


def main(folder: Path) -> None:
    """Measure what FOLDER does not have, and write the curves."""
    curves = [curve(load_measurement(SMOLLM2))]
    for model in sorted(path.name for path in BUNDLED.iterdir() if path.is_dir()):
        file = folder / f"{model}.nc"
        if not file.exists():
            save_measurement(measure(model, tokens=TOKENS, prompts=PROMPTS), file)
        curves.append(curve(load_measurement(file)))
    save_json({"curves": curves}, PLACE / "curves.json")
    save_json(recency(), PLACE / "layernorm.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
