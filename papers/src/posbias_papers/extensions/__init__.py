"""Our own studies, which belong to no paper: a module each, and a page of the documents that says what was found.

    from posbias_papers.extensions import EXTENSIONS, influence

    files = EXTENSIONS["designed"].make("results/extensions")

`posbias paper extensions NAME` does the same. None of them judges a paper.
"""

from posbias_papers.extensions import designed, influence, ordering, predictors, second_model
from posbias_papers.extensions.extension import Extension

EXTENSIONS: dict[str, Extension] = {
    module.EXTENSION.name: module.EXTENSION
    for module in (designed, ordering, predictors, influence, second_model)
}
"""By name."""
