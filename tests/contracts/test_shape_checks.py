"""While tests run, an array of another shape than its signature says is refused."""

from collections.abc import Mapping

import numpy as np
import pytest
import shapes
from jaxtyping import Float, TypeCheckError

from posbias.profiles.profile import Profile

Row = Float[np.ndarray, "position"]


def product(kernel: Float[np.ndarray, "query key"], row: Row) -> Float[np.ndarray, "key"]:
    return row @ kernel


def named(rows: Mapping[str, Row] | None) -> int:
    return len(rows or ())


def first(rows: list) -> object:
    return rows[0]


def test_functions_that_name_an_array_are_checked_and_no_others():
    assert shapes.checked(first) is first
    for function in (product, named):
        assert shapes.checked(function) is not function


def test_a_wrong_shape_is_refused():
    assert shapes.checked(product)(np.eye(3), np.ones(3)).shape == (3,)
    with pytest.raises(TypeCheckError):
        shapes.checked(product)(np.ones(3), np.ones(3))
    with pytest.raises(TypeCheckError):
        shapes.checked(named)({"a": np.eye(2)})


def test_signatures_of_the_package_are_checked():
    profile = Profile(np.array([0.25, 0.75]))
    with pytest.raises(TypeCheckError):
        type(profile)(np.eye(2))
