"""Table 1: the models with their size, depth and how positions enter."""

from collections.abc import Iterator
from typing import Any

from posbias.profiles.claims import Claim
from posbias.profiles.estimate import Estimate
from posbias.profiles.evidence import Evidence, Near, Printed
from posbias.theory.configs import PRESETS
from posbias_papers.claims import AtHand
from posbias_papers.herasimchyk2026.levels import slopes_of
from posbias_papers.herasimchyk2026.measurements import Measurements, study_of
from posbias_papers.herasimchyk2026.printed import HUB, TABLE1
from posbias_papers.herasimchyk2026.rows import Ours, beside, beside_table, expected
from posbias_papers.pages import Table

HEAD = ("model", "parameters (B)", "depth", "heads", "positions")


def _row_claim(model: str) -> Claim:
    """A row of the table, held against the configuration that the model's makers publish."""
    size, depth = TABLE1[model]
    known = PRESETS[HUB[model].preset]

    def evidence() -> Iterator[Evidence]:
        where = f"layers in the configuration of {known.source} (its {size:g} billion parameters not counted)"
        yield Evidence(where, Estimate(float(known.depth)), test=Printed(Estimate(float(depth)), 0))

    sentence = f"Table 1, row {model}: {depth} layers"
    name = f"herasimchyk2026/table1/{model}"
    quantity = AtHand(evidence, f"the configuration of {known.source}")
    return Claim(
        name, "Table 1", sentence, quantity, strength="printed", scope=model, effort="a specification"
    )


def counted(model: str) -> int:
    """The parameters of one of the paper's models, by the configuration that its makers publish."""
    known, hub = PRESETS[HUB[model].preset], HUB[model]
    return hub.parameters(known.depth, known.heads)


def _parameters() -> Iterator[Evidence]:
    """By how many billions the printed parameters are off; a name such as 7b is no rounded number."""
    for model, (size, _) in TABLE1.items():
        count = counted(model) / 1e9
        yield Evidence(f"{model}, {count:.2f} for {size:g}", Estimate(count), test=Near(size, 1.0))


CLAIM = Claim(
    "herasimchyk2026/table1/1",
    "Table 1",
    "Table 1: the printed parameters are those of the configurations, to within a billion",
    AtHand(_parameters, "the configurations on the hub"),
    strength="printed",
    scope=", ".join(TABLE1),
    effort="a specification",
)


def _specifications(results: Measurements) -> list[list[Any]]:
    """Model, parameters (None where the file does not say), layers, heads, how positions enter."""
    rows = []
    for key in results.leading:
        cell = results.cells[key]
        named = str(cell.attrs.get("positional", "through queries and keys"))
        positions = named if slopes_of(cell) is None else "ALiBi"
        parameters = cell.attrs.get("parameters")
        size = None if parameters is None else int(parameters)
        rows.append([key.model, size, cell.sizes["layer"], cell.sizes["head"], positions])
    return rows


def _words(specification: list[Any]) -> list[str]:
    model, parameters, depth, heads, positions = specification
    size = "–" if parameters is None else f"{parameters / 1e9:.3g}"
    return [model, size, str(depth), str(heads), positions]


def _ours(results: Measurements) -> Ours:
    for model, parameters, depth, *_ in _specifications(results):
        if parameters is not None:
            yield model, "", "parameters (B)", Estimate(parameters / 1e9)
        yield model, "", "depth", Estimate(float(depth))


def _tables(results: Measurements) -> Iterator[Table]:
    yield Table("Models measured here", HEAD, [_words(row) for row in _specifications(results)])
    printed = [
        [
            *(model, f"{size:g}", str(depth), str(PRESETS[HUB[model].preset].heads), "ALiBi"),
            f"{counted(model) / 1e9:.2f}",
        ]
        for model, (size, depth) in TABLE1.items()
    ]
    yield Table("Printed in the paper (the last three are ours)", (*HEAD, "counted (B)"), printed)
    yield beside_table("table1", _ours(results))


STUDY = study_of(
    "table1",
    "Models: parameters and depth",
    "What are the models that are compared?",
    (CLAIM,),
    _tables,
    lambda results: {
        "models": [_words(row) for row in _specifications(results)],
        **beside("table1", _ours(results)),
    },
    lambda results: "Architectural specifications.",
    minutes={"quick": 0.1, "full": 0.1},
    expected=expected("table1", lambda number: f"{number.model}, {number.what}"),
    row_claims=tuple(map(_row_claim, TABLE1)),
)
