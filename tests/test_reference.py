"""What the code computes is what tests/reference.json has: the guard of every redesign."""

import json

import pytest
from reference import FILE, SECTIONS, computed

KEPT = json.loads(FILE.read_text())


def close(value, rtol):
    """A number within the tolerance, anything else as it is; lists and tables element by element."""
    if isinstance(value, list):
        return [close(one, rtol) for one in value]
    return pytest.approx(value, rel=rtol, abs=1e-12, nan_ok=True) if isinstance(value, float) else value


@pytest.mark.parametrize("section", SECTIONS)
def test_numbers_are_those_of_the_reference(section):
    found, kept = computed(section), KEPT[section]
    assert found.keys() == kept.keys()
    if section == "training":
        for name, (value, error) in found.items():
            assert abs(value - kept[name][0]) <= 4 * (error**2 + kept[name][1] ** 2) ** 0.5, name
        return
    wrong = {
        key: (found[key], kept[key]) for key in kept if found[key] != close(kept[key], SECTIONS[section][1])
    }
    assert not wrong
