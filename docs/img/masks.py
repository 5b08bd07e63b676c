"""Masks as relations and as graphs, centre nodes in blue (Wu et al. 2025, Figure 1, and masks of later models)."""

from posbias.reports.plots import save_figure
from posbias.theory.masks import BlockSparse, Causal, Chunked, Dilated, Prefix, SlidingWindow
from posbias_papers.plots import mask_figure

masks = [Causal(), SlidingWindow(3), SlidingWindow(3, sinks=1), Prefix(3)]
masks += [Chunked(3), Dilated(2), BlockSparse(2, local=1, first=1)]
save_figure(mask_figure(masks, tokens=8), "masks.png")
