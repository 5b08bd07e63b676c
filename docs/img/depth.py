"""What if BLOOM-176B were shallower: the profile for every depth up to its own."""

from posbias import preset
from posbias.reports.plots import save_figure, variation_figure
from posbias.theory.variation import values_of, vary

quantity, depths = values_of("depth=1:70")
save_figure(variation_figure(quantity, vary(preset("bloom-176b"), quantity, depths, tokens=256)), "depth.png")
