"""A measurement as labelled arrays: an xarray dataset that shows itself in a notebook with its influence curve."""

import xarray as xr

from posbias.errors import PosbiasError
from posbias.profile import Profile


def influence_profile(measurement: xr.Dataset) -> Profile:
    """The gradient influence of the last token, normalised, with its prompts as samples."""
    attrs = {"model": measurement.attrs.get("model", ""), "text": measurement.attrs.get("text", "")}
    return Profile.from_samples(measurement["influence"].values, measures="gradient", attrs=attrs)


class Measurement(xr.Dataset):
    """An xarray dataset, and nothing more but what a notebook shows of it."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """A line of words and the curve with its 95 % band, over the table; the table alone without influence."""
        table = super()._repr_html_()
        try:
            return f"{influence_profile(self)._repr_html_()}{table}"
        except (KeyError, PosbiasError):
            # a selection of it may have no influence, or that of no prompt
            return table
