"""A measurement as labelled arrays: an xarray dataset that shows itself in a notebook with its influence curve."""

import xarray as xr

from posbias.core.errors import PosbiasError
from posbias.profiles.profile import measured_influence


class Measurement(xr.Dataset):
    """An xarray dataset, and nothing more but what a notebook shows of it."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """A line of words and the curve with its 95 % band, over the table; the table alone without influence."""
        table = super()._repr_html_()
        try:
            return f"{measured_influence(self)._repr_html_()}{table}"
        except (KeyError, PosbiasError):
            # a selection of it may have no influence, or that of no prompt
            return table
