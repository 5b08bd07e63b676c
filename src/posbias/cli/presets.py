"""`posbias presets`: the architectures that have a name."""

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.core.terminal import table
from posbias.reports import answers


def presets(*, json: shared.Json = False) -> None:
    """List the architectures that `posbias predict` knows by name."""
    from posbias.core.spec import encode
    from posbias.theory.configs import PRESETS

    rows, records = [], []
    for name, one in PRESETS.items():
        numbers = f"{one.depth}", f"{one.heads}", f"{one.context:,}", f"{one.window:,}" if one.window else "–"
        rows.append([name, *numbers, f"at {one.mixing.tokens:,} tokens" if one.mixing else "–", one.exact])
        records.append(answers.Preset.of(one, name=name, mixing=one.mixing and encode(one.mixing)))
    head = ["preset", "layers", "heads", "context", "window", "λ known", "what its configuration determines"]
    answer_with(answers.Presets.of(presets=records), lambda: table(head, rows), json)
