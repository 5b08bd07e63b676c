"""The library's tests: every array signature is checked against its shape."""

from setting import logging_as_found, pytest_collection_modifyitems  # noqa: F401
from shapes import check_shapes

check_shapes(["posbias"])
