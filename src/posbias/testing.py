"""For tests of one's own: position must not matter by more than a limit.

from posbias.testing import assert_position_robust

def test_the_server():
    assert_position_robust(ask_my_server, "questions.jsonl", max_gap=0.1)
"""

from typing import Any

from posbias.checking import check


def assert_position_robust(
    ask: Any, trials: Any = None, max_gap: float = 0.1, *, undecided: bool = False, **how: Any
) -> None:
    """Raise `AssertionError` unless every gap is surely within `max_gap`; with `undecided`, where one is above it.

    `ask`, `trials`, `how`: as of `posbias.check`; of items `max_gap` is the largest share of flips.
    """
    answer = check(ask, trials, max_gap, **how)
    if answer.status not in ((0, 4) if undecided else (0,)):
        raise AssertionError("\n".join(answer.answer))
