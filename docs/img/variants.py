"""LayerNorm's recency with parameters, heads, a feed-forward block, an encoding: sign and strength, by layer.

Run as a script it draws the picture of docs/img (five to ten minutes); imported, a rough one of it.
"""

from posbias.reports.plots import new_figure, save_figure
from posbias_papers.plots.variants import draw_variants
from posbias_papers.simulation.variants import VARIANTS, simulate_variant

networks, inputs = (400, 300) if __name__ == "__main__" else (20, 30)
results = {name: simulate_variant(variant, networks, inputs) for name, variant in VARIANTS.items()}
figure = new_figure(6.8, 7.2)
draw_variants(figure.subplots(), results)
save_figure(figure, "variants.png")
