"""Calls that are refused: what a wrong input has to come to."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from posbias.core.errors import InvalidValueError, PosbiasError


def refused(name: str, *calls: Callable[[], Any], error: type[PosbiasError] = InvalidValueError) -> None:
    """Each call raises this error, in one line whose head names the argument."""
    for number, call in enumerate(calls):
        with pytest.raises(error) as caught:
            call()
        assert re.search(rf"\b{re.escape(name)}(\[\d+\])?: ", str(caught.value)), (
            f"call {number}: {caught.value}"
        )
        assert "\n" not in str(caught.value)
