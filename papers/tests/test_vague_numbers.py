"""Numbers too vague, or too near a bound, to say anything: claims about them stay undecided."""

from posbias.profiles.claims import judge
from posbias.profiles.evidence import Above
from posbias_papers.herasimchyk2026.printed import TABLE4
from posbias_papers.herasimchyk2026.profiles import of_prompts
from posbias_papers.herasimchyk2026.rows import row_claim


def row(*off, se):
    """The row of bloom-7b in Table 4, of which the first numbers were measured so far off."""
    texts = [(corpus, value) for corpus, values in TABLE4["bloom-7b"].items() for value in values]
    entries = [
        {"model": "bloom-7b", "corpus": corpus, "what": f"({'abc'[place % 3]})", "here": value + by, "se": se}
        for place, ((corpus, value), by) in enumerate(zip(texts, off, strict=False))
    ]
    return judge(row_claim("table4", "bloom-7b", "as printed"), {"printed_beside": entries})


def test_a_printed_row_is_not_confirmed_by_a_vague_number():
    vague = row(1.4, se=0.9)
    assert vague.verdict == "undecided"
    assert "0.05" in vague.why
    assert row(0.01, se=0.01).verdict == "holds"
    assert row(0.2, se=0.01).verdict == "fails"


def test_one_of_nine_numbers_may_be_two_standard_errors_off():
    assert row(*[0.0] * 8, 0.005 + 0.0205, se=0.01).verdict == "holds"
    assert row(0.005 + 0.0205, se=0.01).verdict == "fails"


def test_the_number_furthest_off_decides():
    far = row(0.0, 0.06, 0.0, se=0.01)
    assert far.verdict == "fails"
    assert far.estimate.value == TABLE4["bloom-7b"]["FineWeb-Edu"][1] + 0.06
    assert "(b) on FineWeb-Edu" in far.why


def test_levels_near_their_bound_are_left_open():
    assert of_prompts("tiny", -0.0002).tested(Above()).verdict() == "undecided"
    assert of_prompts("tiny", -0.2).tested(Above()).verdict() == "fails"
    assert of_prompts("tiny", 0.2).tested(Above()).verdict() == "holds"
