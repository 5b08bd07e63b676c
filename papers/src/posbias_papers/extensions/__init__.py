"""Our own studies, which belong to no paper: a module each, and a page of the documents that says what was found.

    from posbias_papers.extensions import EXTENSIONS

    files = EXTENSIONS["averages"].make("results/extensions")

`posbias paper extensions NAME` does the same. Nothing of them is a verdict on a paper.
"""

from posbias_papers.extensions import averages, behaviour, designed, ordering, predictors, untrained
from posbias_papers.extensions.extension import Extension

EXTENSIONS: dict[str, Extension] = {
    one.EXTENSION.name: one.EXTENSION
    for one in (averages, untrained, designed, ordering, predictors, behaviour)
}
"""By name."""
