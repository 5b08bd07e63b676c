"""A figure in one line, as wide as a column of a paper: profiles, measurements, retrievals or choices by name.

    posbias.plot({"BLOOM": profile, "MPT": other}, size=(3.4, 2.4), out="fig.pdf")

Each makes a figure of its own; `value.plot(ax)` draws on axes that are there.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.choice.answer import ChoiceAnswer, read
from posbias.core.errors import positive, wrong
from posbias.profiles.places import Places
from posbias.profiles.profile import Profile
from posbias.reports.plots import influence, retrieval, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot(values: Any, *, size: tuple[float, float] = (3.4, 2.4), out: str | Path | None = None) -> "Axes":
    """Draw values of one kind on new axes, with 95 % intervals where they have any, and return the axes.

    `values`: one, or a dictionary of several by name, in memory or as files that `posbias.read` reads. Profiles of
    mass and measurements are drawn by share of the text, rates and signed numbers by place; retrievals (`Places`)
    by place, in the quantity that decides their verdict; of answers on choices the effect of each slot, or of more
    than six answers the first slot's less the last's. `size`: width and height in inches, whatever the legend
    takes. `out`: a file to write, a PDF, SVG or PNG by its suffix.

    Raises `InvalidValueError` for no values, other ones or several kinds, and for another suffix;
    `OutputFileError` where the file cannot be written, `MissingPackageError` without matplotlib.
    """
    given = values if isinstance(values, dict) else {"": values}
    kept = Places | ChoiceAnswer
    held: Any = {name: one if isinstance(one, kept) else read(one) for name, one in given.items()}
    named = {name or getattr(one, "model", ""): one for name, one in held.items()}
    kinds, first = {*map(_kind, named.values())}, next(iter(named.values()), None)
    if len(kinds) != 1 or not isinstance(first, Profile | Places | ChoiceAnswer):
        raise wrong("values", "profiles, retrievals or choices of one kind", sorted(kinds))
    if np.shape(size) != (2,):
        raise wrong("size", "width and height in inches", size)
    width, height = (positive("size", inches) for inches in size)
    ax: Any = style.new_axes(width, height) if out is None else style.new_figure(width, height).subplots()
    if isinstance(first, Places):
        retrieval.draw_ways(ax, named, first.measures)
    elif isinstance(first, ChoiceAnswer):
        retrieval.draw_effects(ax, retrieval.effects_of(named))
    elif first.kind == "mass":
        influence.draw_profiles(ax, named)
    else:
        for name, profile in named.items():
            influence.draw_profile(ax, profile, name)
    ax.figure.set_size_inches(width, height)
    if out is not None:
        style.save_figure(ax.figure, out)
    return ax


def _kind(value: Any) -> str:
    """What has to be the same of all that one axes shows."""
    return getattr(value, {Profile: "kind", Places: "measures"}.get(type(value), ""), type(value).__name__)
