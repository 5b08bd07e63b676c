"""What the code computes is what tests/reference.json has: the guard of every redesign."""

import json

import pytest
from reference import FILE, SECTIONS, computed

KEPT = json.loads(FILE.read_text())


FLOAT32 = ("measurement", "retrieval")
"""Sections of models that compute in float32: another kind of processor rounds otherwise, by 5e-6 of the largest
entry, or of the logits (nats), from which small differences are taken."""


def close(value, rtol, atol=1e-12):
    """A number within the tolerance, anything else as it is; lists and tables element by element."""
    if isinstance(value, list):
        return [close(one, rtol, atol) for one in value]
    return pytest.approx(value, rel=rtol, abs=atol, nan_ok=True) if isinstance(value, float) else value


def largest(value):
    """The largest number in it, 0 where there is none."""
    if isinstance(value, list):
        return max(map(largest, value), default=0.0)
    return abs(value) if isinstance(value, float) and value == value else 0.0


@pytest.mark.parametrize("section", SECTIONS)
def test_numbers_are_those_of_the_reference(section):
    found, kept = computed(section), dict(KEPT[section])
    assert found.keys() == kept.keys()
    if section == "training":
        assert found.pop("loss by network") == close(kept.pop("loss by network"), 1e-3)
        for name, (value, error) in found.items():
            assert abs(value - kept[name][0]) <= 4 * (error**2 + kept[name][1] ** 2) ** 0.5, name
        return
    for key, value in kept.items():
        atol = 5e-6 * max(1.0, largest(value)) if section in FLOAT32 else 1e-12
        assert found[key] == close(value, SECTIONS[section][1], atol), key
