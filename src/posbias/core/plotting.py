"""Values that draw themselves: `.plot()` and the picture of a notebook, by a function of `posbias.reports.plots`.

    class Profile(Plottable):
        _drawn_by = "draw_profile"

Drawing stands above the values that are drawn, and is loaded when somebody asks for it.
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Plottable:
    """A value that a function of `posbias.reports.plots` draws: the one whose name is `_drawn_by`."""

    _drawn_by: ClassVar[str]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw it (a new figure without `ax`) and return the axes.

        On axes that have such a value already both are shown, with a legend. A figure without a layout engine gets
        the tight one, which keeps all words within it.

        Raises `MissingPackageError` without matplotlib.
        """
        from posbias.reports import plots

        ax = plots.new_axes() if ax is None else ax
        figure = ax.get_figure(root=True)
        if figure is not None and figure.get_layout_engine() is None:
            figure.set_layout_engine("tight")
        return getattr(plots, self._drawn_by)(ax, self)

    def _repr_html_(self) -> str:
        """What a notebook shows: a line of words and the picture of `plot`; without matplotlib the words."""
        from posbias.reports import plots

        return plots.notebook_html(self._words(), self.plot)

    def _words(self) -> str:
        """What stands above the picture in a notebook."""
        return str(self)
