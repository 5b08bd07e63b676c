"""The papers' tests: the setting of the library's, tiny models, shapes checked."""

from setting import logging_as_found, pytest_collection_modifyitems  # noqa: F401, I001
from tiny import build, folder, ids, text, tiny  # noqa: F401
from shapes import check_shapes

check_shapes(
    [
        "posbias_papers.closed_forms.bounds",
        *(f"posbias_papers.herasimchyk2026.{name}" for name in ("levels", "table")),
    ]
)
