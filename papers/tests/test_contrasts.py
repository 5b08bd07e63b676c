"""Claims as rows: every contrast and test against what it says, on tables made by hand."""

import csv

import numpy as np
import pandas as pd
import pytest

from posbias.core.errors import InputFileError
from posbias.profiles.claims import Above, Below, Near
from posbias.profiles.estimate import Estimate
from posbias_papers.claims import Evidence, Printed, judge, mean
from posbias_papers.contrasts import FIELDS, contrasted, read_claims, read_test, share

NOISE = np.random.default_rng(0).normal(0.0, 0.001, (100, 3))


def by_network(gaps: dict[tuple, float]) -> pd.DataFrame:
    """Three networks of each setting (positional, depth) whose gap is so large."""
    rows = [
        {"positional": word, "depth": depth, "network": n, "gap": gap + NOISE[place, n], "loss": 1.0 + n}
        for place, ((word, depth), gap) in enumerate(gaps.items())
        for n in range(3)
    ]
    return pd.DataFrame(rows).set_index(["positional", "depth", "network"]).sort_index()


def estimated(values: dict[int, tuple[float, float]]) -> pd.DataFrame:
    """An estimate by depth: value and standard error of ten million samples."""
    rows = [
        {"depth": depth, "n": 10**7, "p": value, "p_se": se, "printed_se": 1e-5}
        for depth, (value, se) in values.items()
    ]
    return pd.DataFrame(rows).set_index(["depth"])


RISING = by_network(
    {("none", 2): 0.1, ("none", 4): 0.3, ("none", 6): 0.5, ("decay", 2): 0.0, ("decay", 6): 0.1}
)
PARALLEL = by_network({("none", 2): 0.1, ("none", 6): 0.3, ("decay", 2): 0.1, ("decay", 6): 0.3})
FALLING = by_network({("none", 2): 0.5, ("none", 4): 0.3, ("none", 6): 0.1})
HUMP = by_network(
    {("none", 2): 0.1, ("none", 4): 0.5, ("none", 6): 0.2, ("decay", 2): 0.0, ("decay", 4): 0.1}
)


def evidence(table, where, quantity, contrast, test):
    """What a row of claims.csv makes of a table."""
    return contrasted(table.query(where) if where else table, quantity, contrast, test)


def verdict(table, contrast, test, where="", quantity="gap"):
    pieces = [piece.tested(read_test(test)) for piece in evidence(table, where, quantity, contrast, test)]
    verdicts = [piece.verdict(len(pieces)) for piece in pieces]
    return "fails" if "fails" in verdicts else "undecided" if "undecided" in verdicts else "holds"


@pytest.mark.parametrize(
    ("contrast", "test", "where", "holds", "fails"),
    [
        ("each", "> 0 by 0.02", "positional == 'none'", RISING, -RISING),
        ("each", "< 0 by 0.02", "positional == 'none'", -RISING, RISING),
        ("each", "= 0 within 0.3", "positional == 'decay'", RISING, RISING + 0.5),
        ("each", "!= 0 by 0.02", "positional == 'none'", -RISING, by_network({("none", 2): 0.0})),
        ("depth: 6 - 2", "> 0 by 0.02", "", RISING, FALLING),
        ("depth: next - this", "> 0 by 0.02", "", RISING, HUMP),
        ("positional: none - each", "> 0 by 0.02", "", RISING, -RISING),
        ("positional: none - decay", "> 0 by 0.02", "depth == 6", RISING, -RISING),
        ("depth: next - this; positional: each - each", "!= 0 by 0.02", "depth in [2, 6]", RISING, PARALLEL),
        ("turns depth", "> 0 by 0.02", "positional == 'none'", HUMP, RISING),
        ("any each", "> 0 by 0.02", "", by_network({("none", 2): -1.0, ("none", 4): 1.0}), -RISING),
        ("share each", "> 0 by 0.02", "", HUMP, -RISING),
    ],
)
def test_a_contrast_holds_and_fails(contrast, test, where, holds, fails):
    assert verdict(holds, contrast, test, where) == "holds"
    assert verdict(fails, contrast, test, where) == "fails"


def wrongly(contrast: str, words: tuple[str, ...], depths: int, mean: float = 0.1, runs: int = 300) -> float:
    """How much more often than in 5 % a claim on three networks of each setting, all of one mean, holds."""
    test = "!= 0 by 0.02" if "any" in contrast else "> 0 by 0.02"
    table = by_network({(word, depth): 0.0 for word in words for depth in range(depths)})
    held = 0
    for run in range(runs):
        table["gap"] = np.random.default_rng(run).normal(mean, 0.02, len(table))
        held += verdict(table, contrast, test) == "holds"
    return held / runs - 0.05 - 4 * np.sqrt(0.05 * 0.95 / runs)


def test_what_is_picked_is_taken_for_there_no_more_often_than_the_level():
    assert wrongly("turns depth", ("a",), 5) < 0
    assert wrongly("any depth: next - this; positional: each - each", ("a", "b", "c"), 3) < 0
    assert wrongly("any each", ("a", "b"), 2, mean=0.0) < 0


def test_a_series_that_turns_is_not_failed_for_another_or_for_one_that_has_not_learnt():
    flat = {("flat", depth): 0.0 for depth in (2, 4, 6)}
    both = by_network({("none", 2): 0.1, ("none", 4): 0.5, ("none", 6): 0.2} | flat)
    assert verdict(both, "turns depth", "> 0 by 0.02") == "holds"
    assert verdict(by_network(flat), "turns depth", "> 0 by 0.02") == "fails"
    idle = by_network(flat)
    idle.loc[("flat", 4), "gap"] = np.nan
    assert verdict(idle, "turns depth", "> 0 by 0.02") == "undecided"


def test_networks_are_compared_by_welchs_test_and_estimates_by_their_errors():
    (piece,) = evidence(RISING, "positional == 'none'", "gap", "depth: 6 - 2", "> 0")
    ends = [RISING.xs(("none", depth))["gap"].to_numpy() for depth in (6, 2)]
    assert piece.estimate == Estimate.of_mean(ends[0]) - Estimate.of_mean(ends[1])
    assert piece.where == "depth 6 less 2"
    (piece,) = evidence(estimated({1: (0.5, 3e-5), 2: (0.6, 4e-5)}), "", "p", "depth: 2 - 1", "> 0")
    assert piece.estimate.value == pytest.approx(0.1)
    assert piece.estimate.se == pytest.approx(5e-5)


def test_a_quantity_may_be_an_expression_and_networks_without_it_are_left_out():
    table = RISING.assign(gap=RISING["gap"].where(RISING.index.get_level_values("depth") != 4))
    pieces = evidence(table, "positional == 'none'", "gap - loss", "each", "> 0")
    assert [(piece.where, piece.flaw) for piece in pieces] == [
        ("depth 2", ""),
        ("depth 4", "networks: 0 of 3, two needed"),
        ("depth 6", ""),
    ]
    values = (RISING["gap"] - RISING["loss"]).xs(("none", 2)).to_numpy()
    assert pieces[0].estimate == mean("", values).estimate


def test_several_quantities_have_tests_of_their_own():
    pieces = evidence(RISING, "positional == 'none'", "gap ; loss < 1.5 ; loss", "each", "> 0 by 0.02")
    assert [piece.where for piece in pieces[::3]] == ["depth 2: gap", "depth 2: loss", "depth 2: loss"]
    assert [piece.test for piece in pieces[::3]] == [Above(0.0, 0.02), Below(1.5, 0.0), Above(0.0, 0.02)]


def test_a_single_network_decides_nothing():
    table = RISING.xs(0, level="network", drop_level=False)
    assert {piece.flaw for piece in evidence(table, "", "gap", "each", "> 0")} == {
        "networks: 1 of 1, two needed"
    }
    assert not evidence(table, "depth == 9", "gap", "each", "> 0")


def test_of_exact_numbers_that_all_miss_a_bar_the_nearest_is_named():
    exact = estimated({1: (-0.3, 0.0), 2: (0.003, 0.0), 3: (-0.05, 0.0)})
    (piece,) = evidence(exact, "", "p", "any each", "> 0.02")
    assert (piece.estimate.value, piece.p) == (0.003, 1.0)


def test_a_share_counts_those_without_a_number_apart():
    known = [
        Evidence("a", Estimate(1.0, 0.1), test=Above()),
        Evidence("b", Estimate(-1.0, 0.1), test=Above()),
    ]
    assert share("cases", [*known, Evidence("c", flaw="none")]).where == "cases, 1 of 2, 1 without a number"


def test_a_printed_number_has_the_error_of_its_own_samples():
    table = estimated({1: (0.50149, 1e-5)})
    (piece,) = evidence(table, "", "p", "each", "printed 0.5015")
    assert piece.test == Printed(Estimate(0.5015, 1e-5, 1), 4, known=5e-4)
    assert piece.verdict() == "holds"
    (far,) = evidence(table, "", "p", "each", "printed 0.5025")
    assert far.verdict() == "fails"
    (vague,) = evidence(estimated({1: (0.5015, 6e-4)}), "", "p", "each", "printed 0.5015")
    assert vague.verdict() == "undecided"


def test_tests_are_read():
    assert read_test("> 0.5 by 0.00005") == Above(0.5, 5e-5)
    assert read_test("< 0") == Below(0.0, 0.0)
    assert read_test("= 0.5 within 1e-3") == Near(0.5, 1e-3)
    with pytest.raises(ValueError, match="test: expected one of"):
        read_test("about 0")


def write(path, **fields):
    row = dict.fromkeys(FIELDS, "") | {"id": "p/fig1/1", "provenance": "paper", "strength": "observation"}
    row |= {"figure": "fig1", "quantity": "gap", "contrast": "each", "test": "> 0 by 0.02"}
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, FIELDS)
        rows.writeheader()
        rows.writerow(row | fields)
    return path


def test_rows_become_claims_and_a_named_function_takes_the_table(tmp_path):
    (claim,) = read_claims(write(tmp_path / "claims.csv"))["fig1"]
    assert judge(claim, RISING.query("positional == 'none'")).verdict == "holds"
    path = write(tmp_path / "named.csv", quantity="largest()", where="positional == 'none'")
    functions = {"largest": lambda table: [mean("largest", table["gap"].groupby("network").max().to_numpy())]}
    (claim,) = read_claims(path, functions)["fig1"]
    assert judge(claim, RISING).estimate.value == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("fields", [{"test": "large"}, {"quantity": "unknown()"}])
def test_a_row_that_cannot_be_read_is_named(tmp_path, fields):
    with pytest.raises(InputFileError, match=r"claims\.csv: p/fig1/1: "):
        read_claims(write(tmp_path / "claims.csv", **fields))
