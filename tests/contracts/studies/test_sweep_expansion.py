"""A sweep is what nested loops would write; what cannot be one is refused, naming it."""

import copy
import json
from dataclasses import fields, is_dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.core.errors import InvalidValueError
from posbias.core.spec import MOST, expand, leaves, paths, values_at, with_values
from posbias.study.verbs import VERBS, Predict, Simulate, known_paths

NAMES = st.sampled_from("abcd")
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(".".join)
VALUES = st.lists(st.integers(0, 9) | st.text("xyz", max_size=2) | st.just({"k": 1}), min_size=1, max_size=3)


def apart(found: list[str]) -> bool:
    """Whether no path is another or inside it."""
    return not any(
        a is not b and (a == b or f"{a}.".startswith(f"{b}.")) for a in found for b in found
    ) and len(set(found)) == len(found)


def by_loops(base: dict, axes: list[tuple[str, list]]) -> list[dict]:
    """The reference: a loop per axis, the last one innermost."""
    if not axes:
        return [base]
    (path, values), *others = axes
    made = []
    for one in values:
        changed = copy.deepcopy(base)
        place = changed
        *tables, key = path.split(".")
        for table in tables:
            place = place.setdefault(table, {})
        place[key] = one
        made += by_loops(changed, others)
    return made


@given(st.lists(st.tuples(PATHS, VALUES), max_size=3).filter(lambda axes: apart([path for path, _ in axes])))
def test_a_sweep_is_nested_loops_the_last_axis_innermost(axes):
    base = {"other": {"kept": [1, 2]}}
    before = copy.deepcopy(base)
    made = expand(base, dict(axes))
    assert [mapping for _, mapping in made] == by_loops(base, axes)
    assert base == before
    for chosen, mapping in made:
        assert list(chosen) == [path for path, _ in axes]
        assert all(values_at(mapping, path) == [value] for path, value in chosen.items())


@given(
    st.lists(st.tuples(PATHS, VALUES), min_size=1, max_size=3).filter(
        lambda axes: apart([p for p, _ in axes])
    )
)
def test_tables_in_tables_are_the_same_sweep(axes):
    nested: dict = {}
    for path, values in axes:
        *tables, key = path.split(".")
        place = nested
        for table in tables:
            place = place.setdefault(table, {})
        place[key] = values
    as_json = json.dumps  # (tables may come in another order)
    flat = {as_json(chosen, sort_keys=True) for chosen, _ in expand({}, dict(axes))}
    assert {as_json(chosen, sort_keys=True) for chosen, _ in expand({}, nested)} == flat


def test_a_path_through_a_list_is_every_entry_of_it():
    base = {"layers": [{"heads": 2}, {"mask": {"kind": "full"}}]}
    ((chosen, made),) = expand(base, {"layers.positional": ["alibi"]})
    assert made == {
        "layers": [{"heads": 2, "positional": "alibi"}, {"mask": {"kind": "full"}, "positional": "alibi"}]
    }
    assert chosen == {"layers.positional": "alibi"}
    assert values_at(made, "layers.positional") == ["alibi", "alibi"]
    with pytest.raises(InvalidValueError, match=r"layers\.heads"):
        expand(base, {"layers.heads": [1]})


def test_the_known_paths_are_those_of_values_in_values_and_of_all_variants():
    known = known_paths(Predict)
    for path in ("tokens", "architecture.depth", "architecture.layers.mask.width", "architecture.mixing.value",
                 "architecture.layers.positional.rate", "mixing.coefficients"):  # fmt: skip
        assert path in known
    assert "kind" not in known
    assert known_paths(Simulate)[:2] == ["model", "model.tokens"]
    assert {"task.items", "network.mask.width", "network.positional.base", "sequences"} <= {
        *known_paths(VERBS["train"])
    }
    assert "seeds" not in known_paths(VERBS["train"])
    for cls in VERBS.values():
        assert is_dataclass(cls)
        assert {field.name for field in fields(cls)} <= {*paths(cls)}


@pytest.mark.parametrize(
    ("base", "sweep", "words"),
    [
        ({}, {"modl.dimension": [1]}, "did you mean 'model.dimension'"),
        ({}, {"model": [{}], "model.dimension": [1]}, "model"),
        ({}, {"model.dimension": [1], "model": {"dimension": [2]}}, "twice"),
        ({}, {"samples": 7}, "samples"),
        ({}, {"samples": []}, "samples"),
        ({"samples": 3}, {"samples": [4]}, "samples"),
        ({"model": 3}, {"model.dimension": [4]}, "model"),
        ({}, [1], "sweep"),
        ({}, {"samples": list(range(101)), "model.dimension": list(range(100))}, f"{MOST:,}"),
    ],
)
def test_what_is_no_sweep_is_refused(base, sweep, words):
    with pytest.raises(InvalidValueError) as caught:
        expand(base, sweep, known_paths(Simulate))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_leaves_and_values_are_each_others_inverse():
    table = {"a": {"b": [1], "c": {"d": 2}}, "e": 3}
    assert leaves(table) == [("a.b", [1]), ("a.c.d", 2), ("e", 3)]
    assert with_values({}, dict(leaves(table))) == table
