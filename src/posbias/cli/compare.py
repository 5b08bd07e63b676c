"""`posbias compare`: a profile against a reference."""

from pathlib import Path

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.terminal import comparison_table, left_out_note


def compare(p: Path, q: Path, *, seed: shared.Seed = 0, json: shared.Json = False) -> None:
    """Compare a profile with a reference: Spearman and 1-Wasserstein, beside baselines and noise.

    Parameters
    ----------
    p
        The profile in question: a prediction's JSON, a JSON list of weights, or a measurement's .nc.
    q
        The reference, in any of the same forms; a .nc brings its prompts, and so intervals and what noise allows.
    """
    from posbias.comparison import compare
    from posbias.predictors import load_profile

    profile, reference = load_profile(p), load_profile(q)
    comparison = compare(profile, reference, seed=seed)
    agreement = comparison.agreements["p"].as_dict()
    answer = {name: score["value"] for name, score in agreement.items()}
    answer["intervals"] = {name: score["interval"] for name, score in agreement.items()}
    answer |= {
        key: value for key, value in comparison.as_dict().items() if key in ("baselines", "reliability")
    }
    answer["left_out"] = [*profile.left_out, *reference.left_out]
    notes = [
        f"{path.name}: {left_out_note(one)}" for path, one in ((p, profile), (q, reference)) if one.left_out
    ]
    answer_with("compare/1", answer, lambda: [*notes, *comparison_table(comparison, {"p": p.name})], json)
