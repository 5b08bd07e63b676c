"""The distance favoured most, against depth: decay masks at t/(e^m − 1), rotary encodings at the root."""

from posbias import DecayBias, RoPE
from posbias.reports.plots import draw_critical_distance, new_figure, save_figure
from posbias.theory.critical_distances import distance_curve

depths = range(1, 41, 3)
figure = new_figure(9.0, 3.8)
left, right = figure.subplots(1, 2)
decays = [distance_curve(DecayBias(rate), depths, 512) for rate in (0.2, 0.5, 1.0)]
rotary = [distance_curve(RoPE([[a]], frequencies=[0.01]), depths, 310) for a in (100.0, 300.0)]
draw_critical_distance(left, {curve.name: curve for curve in decays})
draw_critical_distance(right, {curve.name: curve for curve in rotary})
save_figure(figure, "critical.png")
