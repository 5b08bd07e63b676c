"""`posbias presets`: the architectures that have a name."""

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.terminal import table


def presets(*, json: shared.Json = False) -> None:
    """List the architectures that `posbias predict` knows by name."""
    from posbias.theory.presets import PRESETS

    rows, records = [], []
    for name, known in PRESETS.items():
        window = f"{known.window:,}" if known.window else "–"
        about = [name, f"{known.depth}", f"{known.heads}", f"{known.context:,}", window, known.exact]
        rows.append(about)
        records.append(
            {"name": name, "depth": known.depth, "heads": known.heads, "context": known.context}
            | {"window": known.window, "exact": known.exact, "assumed": list(known.assumed)}
        )
    head = ["preset", "layers", "heads", "context", "window", "what its configuration determines"]
    answer_with("presets/1", {"presets": records}, lambda: table(head, rows), json)
