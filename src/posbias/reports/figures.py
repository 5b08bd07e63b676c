"""The report's figures: what stands on each, what to see in it, and the numbers that it draws as a table."""

import base64
import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from posbias.comparison.predictors import LABELS, STRETCHES, shares
from posbias.profiles.curves import wasserstein
from posbias.profiles.estimate import Estimate
from posbias.profiles.profile import Profile
from posbias.profiles.summary import SHARE
from posbias.reports import plots
from posbias.reports.plots.influence import share_scale
from posbias.reports.plots.style import LEGEND
from posbias.reports.profile_sentences import CAPTIONS
from posbias.reports.sentences import Findings

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

UNIFORM, LOW, HIGH = "(uniform = 1)", "95 % low", "95 % high"


LARGEST_CSV = 100_000
"""Characters of a figure's numbers up to which the page holds them; longer ones are in their own file alone."""
MOST_COLUMNS = 16
"""Columns of numbers up to which the page shows them as a table."""


@dataclass(frozen=True)
class Illustration:
    """A figure of a page: its name in files, its title and caption, and the numbers that it draws."""

    name: str
    title: str
    caption: str
    figure: "Figure"
    numbers: pd.DataFrame
    narrow: "Figure | None" = None
    """The same for screens on which labels of the figure would be too small."""
    digits: int | None = None
    """Digits after the point of the numbers that are shown, where they are shares of answers."""

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The figure as SVG and PNG, and its numbers as CSV with six digits, by the names of their files."""
        text = self.numbers.to_csv(index=False, float_format="%.6g", lineterminator="\n")
        svg = plots.picture_bytes(self.figure, "svg")
        self.figure.set_layout_engine("none")  # what was laid out stays so
        png = plots.picture_bytes(self.figure, "png")
        return {f"{self.name}.svg": svg, f"{self.name}.png": png, f"{self.name}.csv": text.encode()}

    @property
    def picture(self) -> Markup:
        """The figure as an element of the page."""
        return inline_svg(self.files[f"{self.name}.svg"], self.name, self.title)

    @property
    def narrow_picture(self) -> Markup:
        """The figure for narrow screens as an element of the page."""
        assert self.narrow is not None
        return inline_svg(plots.picture_bytes(self.narrow, "svg"), f"{self.name}-narrow", self.title)

    @property
    def link(self) -> str:
        """The numbers as CSV within an address; empty where they are too many for the page."""
        data = self.files[f"{self.name}.csv"]
        return f"data:text/csv;base64,{base64.b64encode(data).decode()}" if len(data) <= LARGEST_CSV else ""

    @property
    def rows(self) -> list[list[str]]:
        """Head and rows of the numbers, to be shown as a table; none where they are too many."""
        shown = self.link and len(self.numbers.columns) <= MOST_COLUMNS
        rows = [*csv.reader(self.files[f"{self.name}.csv"].decode().splitlines())] if shown else []
        if self.digits is None:
            return rows
        return rows[:1] + [[at, *(f"{float(one):.{self.digits}f}" for one in row)] for at, *row in rows[1:]]


def inline_svg(picture: bytes, name: str, title: str) -> Markup:
    """An SVG of matplotlib as an element: own ids, two digits after the point, colours that follow the page.

    It is as wide as its place (`--natural` is its own width, in CSS pixels); text, lines and background take the
    CSS variables that `plots.THEMED` names, so a page may go dark. `title` is read to those who cannot see it.
    """
    text = picture.decode()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    text = re.sub(r'( id="|href="#|url\(#)', rf"\1{name}-", text)
    text = re.sub(
        r"scale\([^)]*\)|-?\d+\.\d{3,}",
        lambda found: found[0] if found[0][0] == "s" else f"{float(found[0]):.2f}".rstrip("0").rstrip("."),
        text,
    )
    for colour, variable in plots.THEMED.items():
        text = text.replace(colour, f"var(--{variable})")
    opening, inside = text[text.index("<svg") :].split(">", 1)
    box = re.search(r'viewBox="([^"]+)"', opening)
    assert box is not None  # matplotlib's
    width = float(box[1].split()[2]) * 4 / 3
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    look = f'viewBox="{box[1]}" style="--natural:{width:g}" role="img" aria-label="{escape(title)}"'
    return Markup(f"<svg {names} {look}>{inside}")


def illustrations(found: Findings) -> list[Illustration]:
    """All figures of the report, drawn."""
    measurement, measured, predictions = found.measurement, found.measured, found.predictions
    depth = measurement.sizes["layer"]
    shown = [round(layer) for layer in np.linspace(0, depth - 1, min(6, depth))]
    where, narrow = (
        plots.drawing(plots.draw_influence, measured, size=size) for size in ((6.6, 3.1), (3.1, 2.6))
    )
    mixing = plots.drawing(plots.draw_mixing, measurement, size=(6.6, 2.9))
    drawn = {
        "influence": (where, curve(measured, measured.tokens, f"measured {UNIFORM}"), narrow),
        "predictors": _predictors(measured, predictions),
        "parts": _parts({name: one.mass for name, one in found.parts.items()}),
        "mixing": (mixing, _mixing(measurement)),
        "sinks": _first_token(measurement),
        "kernels": _kernels(measurement, shown),
    }
    return [Illustration(name, *CAPTIONS[name].values(), *one) for name, one in drawn.items()]


def curve(profile: Profile, scale: float = 1.0, name: str = "") -> pd.DataFrame:
    """A number for each place, times `scale`, and where it has an error its 95 % interval (`Profile.limits`).

    Places are those of `Profile.at`.
    """
    name = name or ("share of the influence" if profile.kind == "mass" else profile.measures)
    place = "place" if profile.places is not None or profile.kind == "rate" else "position"
    ends = dict(zip((LOW, HIGH), profile.limits or (), strict=False))
    numbers = {name: profile.mass, **ends}
    return pd.DataFrame({place: profile.at} | {key: scale * one for key, one in numbers.items()})


def _predictors(measured: Profile, predictions: Mapping[str, Profile]) -> "tuple[Figure, pd.DataFrame]":
    figure, panels = plots.new_panels(len(predictions) + 1, 3, 2.2, 2.05)
    each = zip(panels, predictions.items(), strict=False)
    drawn = [plots.draw_influence(ax, measured, {name: one}) for ax, (name, one) in each]
    share_scale(drawn)
    for ax in drawn:
        ax.label_outer()
    summed = plots.draw_cumulative(panels[-1], measured, predictions)
    summed.set_ylabel("")
    figure.legend(*summed.get_legend_handles_labels(), loc="outside lower center", ncols=3, **LEGEND)
    named = {"measured": measured} | {one.predictor: one for one in predictions.values()}
    densities = {f"{name} {UNIFORM}": one.mass * one.tokens for name, one in named.items()}
    return figure, pd.DataFrame({"position": range(measured.tokens), **densities})


def _parts(known: Mapping[str, np.ndarray]) -> "tuple[Figure, pd.DataFrame]":
    """With the shares of the stretches, and how far (Wasserstein) each curve is from the measured one."""
    figure = plots.new_figure(6.6, 3.0)
    by_stretch, steps = shares(known), [*LABELS.values()]
    ax = plots.draw_parts(figure.subplots(), by_stretch, steps, (SHARE, 1.0 - 2.0 * SHARE, SHARE))
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, **LEGEND)
    names = {"known": ["uniform", *steps[:-1], f"{steps[-1]}: as measured"]}
    apart = {"Wasserstein from measured": [wasserstein(one, known["measured"]) for one in known.values()]}
    return figure, pd.DataFrame(names | dict(zip(STRETCHES, by_stretch.values(), strict=True)) | apart)


def _mixing(measurement: "xr.Dataset") -> pd.DataFrame:
    """Both weights of attention by layer with their intervals over prompts."""
    columns = {"layer": range(measurement.sizes["layer"])}
    for name, label in (("mixing", "norms over the sequence"), ("mixing_token", "mean over tokens")):
        estimates = [Estimate.of_mean(column) for column in measurement[name].values.T]
        columns |= {f"λ ({label})": [one.value for one in estimates]}
        columns |= {f"{LOW} ({label})": [one.interval[0] for one in estimates]}
        columns |= {f"{HIGH} ({label})": [one.interval[1] for one in estimates]}
    return pd.DataFrame(columns)


def _first_token(measurement: "xr.Dataset") -> "tuple[Figure, pd.DataFrame]":
    """By layer: attention on token 0 (mean, and every head), and norms of the residual stream that enters."""
    figure = plots.new_figure(6.6, 2.8)
    left, right = figure.subplots(1, 2)
    plots.draw_sinks(left, measurement)
    plots.draw_norms(right, measurement)
    shares, norms = measurement["sink_share"].values, measurement["residual_norm"].values
    others = norms[:, 1:]
    columns = {"layer": range(len(norms)), "norm of token 0": norms[:, 0]}
    columns |= {"median norm of others": np.median(others, axis=1), "least": others.min(axis=1)}
    columns |= {"most": others.max(axis=1), "attention on token 0, mean of heads": shares.mean(axis=1)}
    return figure, pd.DataFrame(columns | {f"head {k}": column for k, column in enumerate(shares.T)})


def _kernels(measurement: "xr.Dataset", layers: Sequence[int]) -> "tuple[Figure, pd.DataFrame]":
    """A row for each query of a layer, a column for each key."""
    tokens = measurement.sizes["key"]
    figure, panels = plots.new_panels(len(layers), 3, 2.2, 2.05)
    plots.draw_kernels(panels, measurement, layers)
    past = np.tri(tokens, dtype=bool)
    kernels = [np.where(past, measurement["kernel"].values[layer], np.nan) for layer in layers]
    index = {"layer": np.repeat(layers, tokens), "query": np.tile(range(tokens), len(layers))}
    keys = pd.DataFrame(np.concatenate(kernels), columns=[f"key {key}" for key in range(tokens)])
    return figure, pd.concat([pd.DataFrame(index), keys], axis=1)
