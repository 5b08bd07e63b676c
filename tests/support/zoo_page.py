"""What the tries of `zoo.py` came to, as the tables of docs/made/zoo.md."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import transformers
from zoo import TOLERANCE, VERDICTS, Row

PAGE = Path(__file__).parents[2] / "docs" / "made" / "zoo.md"
UNSEEN = ("influence only", "refused", "not built")
"""Verdicts whose reasons the page leaves to `measure` and to `zoo.py NAME`."""


def page(decoders: Sequence[Row], both_ways: Sequence[Row]) -> str:
    """Both tables as Markdown."""
    head = f"""# Families: what can be measured

Every family of transformers {transformers.__version__} with a causal head ({len(decoders)}) or one for masked \
words ({len(both_ways)}), tiny and with random weights. Made by `make pages`, held by `make test-all`. \
[How configurations are read](families.md) is another page.

Attention is held against what the model returns, λ against what a layer adds with its feed-forward block off and \
attention on or off, the gradient influence against a plain backward pass, each to {TOLERANCE:g}; eager against \
fused attention (sdpa) to 1e-2. A released model may use other options: `measure` checks its attention and \
outputs, λ it does not. The gradient influence needs no attention: `gradients(predict(model, ids), ids, \
("probability",))["influence"]`, both of `posbias.measurement.quantities.influence`.
"""
    counts = [Counter(one.verdict for one in rows) for rows in (decoders, both_ways)]
    verdicts = [
        "| verdict | causal | encoders | |",
        "|---|---|---|---|",
        *(
            f"| {kind} | {counts[0][kind]} | {counts[1][kind]} | {meaning} |"
            for kind, meaning in VERDICTS.items()
        ),
        "",
    ]
    return "\n".join([head, *verdicts, *_table("Causal", decoders), *_table("Encoders", both_ways)])


def _table(title: str, rows: Sequence[Row]) -> list[str]:
    """A table of families that share verdict and remarks."""
    alike: dict[tuple[str, str], list[str]] = {}
    for one in sorted(rows, key=lambda one: [*VERDICTS].index(one.verdict)):
        remarks = dict.fromkeys(map(_common, one.remarks)) if one.verdict not in UNSEEN else ()
        remark = "; ".join(remarks)
        family = f"{one.family} ({one.layers})" if _some(one.layers) else one.family
        alike.setdefault((one.verdict, remark), []).append(family)
    return [
        f"## {title}\n",
        "| verdict | | families |",
        "|---|---|---|",
        *(
            f"| {verdict} | {remark} | {', '.join(sorted(names))} |"
            for (verdict, remark), names in alike.items()
        ),
        "",
    ]


def _some(layers: str) -> bool:
    """Whether it is some of a model's layers that were seen, not all."""
    return len({*layers.split(" of ")}) == 2


def _common(remark: str) -> str:
    """A remark without the names and sizes of one family, so that it stands once."""
    remark = re.sub(r"\w+(For[A-Z]\w+|LMHeadModel)( \(\w+\))?", "the model", remark)
    remark = re.sub(r"^'[\w-]+' has", "it has", remark)
    return remark.split("; a model with")[0]
