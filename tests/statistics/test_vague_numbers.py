"""Numbers too vague, or too near a bound, to say anything: claims about them stay undecided."""

from posbias.claims import Above
from posbias.papers.herasimchyk2026.statements import _of_prompts
from posbias.papers.rows import _compared


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
    assert _of_prompts("tiny", -0.0002).tested(Above()).verdict() == "undecided"
    assert _of_prompts("tiny", -0.2).tested(Above()).verdict() == "fails"
    assert _of_prompts("tiny", 0.2).tested(Above()).verdict() == "holds"
