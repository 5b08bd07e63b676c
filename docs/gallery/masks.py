"""Masks as relations and as graphs, centre nodes in blue (Wu et al. 2025, Figure 1)."""

from posbias.plots import mask_figure, save_figure
from posbias.theory.masks import Causal, Prefix, SlidingWindow

masks = [Causal(), SlidingWindow(3), SlidingWindow(3, sinks=1), Prefix(3)]
save_figure(mask_figure(masks, tokens=8), "masks.png")
