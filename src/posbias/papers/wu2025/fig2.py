"""Figure 2: gap by depth, without and with residual connections."""

from posbias.papers.wu2025.depth import both_kinds

STUDY, draw = both_kinds(
    "wu2025/fig2",
    "Gap by depth, without and with residual connections",
    "Does depth turn a network without any bias in its data towards earlier items, and do decay and rotary "
    "encodings work against it?",
    minutes=(11, 1039),
)
