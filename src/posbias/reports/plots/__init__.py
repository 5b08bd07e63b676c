"""Figures: each `draw_…` takes an axes and data, draws on it and returns it; it computes, saves and shows nothing.

    figure = new_figure()
    draw_profile(figure.subplots(), profile)
    save_figure(figure, "profile.svg")

Several of a kind are a mapping from name to each: `draw_profiles(ax, {"causal": profile, "window": other})`.

One style for all: colour-blind safe colours (Okabe and Ito), positions from 0, influence relative to
uniform. matplotlib is loaded with the first figure, never its pyplot; the same data give the same bytes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
