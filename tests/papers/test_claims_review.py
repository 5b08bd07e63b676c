"""Files that look like claims and are none; numbers too vague, or too near a bound, to say anything."""

import pytest

from posbias.errors import InputFileError
from posbias.estimate import Estimate
from posbias.papers.citations import cite_all
from posbias.papers.herasimchyk2026.statements import _of_prompts
from posbias.papers.kim2026.effects import printed_effect
from posbias.papers.kim2026.table import Check
from posbias.papers.rows import _compared


@pytest.mark.parametrize("claims", ["[1, 2]", '["paper"]', "[null]", '[["paper"]]'])
def test_claims_that_are_no_tables_are_refused(tmp_path, claims):
    path = tmp_path / "claims.json"
    path.write_text(f'{{"claims": {claims}}}')
    with pytest.raises(InputFileError, match=r"claims\.json"):
        cite_all([str(path)])


def check(value, se):
    return Check("Section 3", "0.6382", Estimate(value, se, 100), se)


def test_a_printed_probability_is_not_confirmed_by_a_few_samples():
    assert printed_effect(check(0.65, 0.02)).verdict() == "undecided"
    assert printed_effect(check(0.63825, 1e-4)).verdict() == "holds"
    assert printed_effect(check(0.6392, 1e-4)).verdict() == "fails"


def test_a_printed_row_is_not_confirmed_by_a_vague_number():
    *_, verdict, why = _compared([("(a)", 0.90, -0.5, 0.9)])
    assert verdict == "undecided"
    assert "0.05" in why
    assert _compared([("(a)", 0.90, 0.91, 0.01)])[2] == "holds"
    assert _compared([("(a)", 0.90, 0.70, 0.01)])[2] == "fails"


def test_one_of_nine_numbers_may_be_two_standard_errors_off():
    nine = [(f"{k}", 0.5, 0.5, 0.01) for k in range(8)] + [("last", 0.5, 0.5 + 0.005 + 0.0205, 0.01)]
    assert _compared(nine)[2] == "holds"
    assert _compared(nine[-1:])[2] == "fails"


def test_levels_near_their_bound_are_left_open():
    assert _of_prompts("tiny", -0.0002).verdict() == "undecided"
    assert _of_prompts("tiny", -0.2).verdict() == "fails"
    assert _of_prompts("tiny", 0.2).verdict() == "holds"
