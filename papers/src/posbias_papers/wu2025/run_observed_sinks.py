"""Measure the sinks of the models at hand, for papers/src/posbias_papers/wu2025/observed_sinks.toml.

python -m posbias_papers.wu2025.run_observed_sinks [MODEL …] > observed_sinks.toml

10 minutes on two cores, most of it SmolLM2
"""

import json
import sys

from posbias.measurement import load_model
from posbias_papers.measurement.sinks import sinks_by_prompt
from posbias_papers.wu2025.observed import MODELS, SHOWN

TOKENS, PROMPTS, SEED = 256, 16, 0


def listed(values):
    return json.dumps([round(float(value), 6) for value in values])


def section(name):
    """One model's lines of the file."""
    loaded = load_model(name)
    found = sinks_by_prompt(loaded, tokens=TOKENS, prompts=PROMPTS, seed=SEED)
    metric, even = (found[variable].values.mean(axis=1) for variable in ("sink_metric", "even"))
    strongest = 1 + int(metric[:, 1:].mean(axis=0).argmax())
    told = {key: found.attrs[key] for key in ("positional", "checksum", "text", "text_sha256")}
    told |= {
        "tokens": TOKENS,
        "prompts": PROMPTS,
        "seed": SEED,
        "heads": loaded.model.config.num_attention_heads,
    }
    lines = [f"[{name}]", *(f"{key} = {json.dumps(held)}" for key, held in told.items())]
    lines += [f"first = {listed(metric[:, 0])}", f"strongest = {strongest}"]
    lines += [f"other = {listed(metric[:, strongest])}", f"even = {listed(even[0, :SHOWN])}"]
    lines += [f"by_token = {listed(metric.mean(axis=0)[:SHOWN])}"]
    lines += [f"by_layer = {listed(found['sink_metric'].values[:, :, 0].mean(axis=0))}"]
    versions = ", ".join(
        f"{key} = {json.dumps(held)}" for key, held in json.loads(found.attrs["versions"]).items()
    )
    return "\n".join([*lines, f"versions = {{ {versions} }}", ""])


if __name__ == "__main__":
    print("# made by wu2025/run_observed_sinks.py\n")
    for model in sys.argv[1:] or MODELS:
        print(section(model), flush=True)
