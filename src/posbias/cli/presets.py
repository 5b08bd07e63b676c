"""`posbias presets`: the architectures that have a name."""

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.core.text_tables import table


def presets(*, json: shared.Json = False) -> None:
    """List the architectures that `posbias predict` knows by name."""
    from posbias.core.spec import encode
    from posbias.reports.answers.predictions import Preset, Presets
    from posbias.theory.presets import PRESETS

    rows, records = [], []
    for name, known in PRESETS.items():
        window = f"{known.window:,}" if known.window else "–"
        mixing = known.mixing
        at = "–" if mixing is None else f"at {mixing.tokens:,} tokens"
        about = [name, f"{known.depth}", f"{known.heads}", f"{known.context:,}", window, at, known.exact]
        rows.append(about)
        records.append(Preset.of(known, name=name, mixing=None if mixing is None else encode(mixing)))
    head = ["preset", "layers", "heads", "context", "window", "λ known", "what its configuration determines"]
    answer_with(Presets.of(presets=records), lambda: table(head, rows), json)
