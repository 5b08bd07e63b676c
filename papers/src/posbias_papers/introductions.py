"""What each of the three papers says, in three sentences."""

INTRODUCTIONS: dict[str, tuple[str, ...]] = {
    "wu2025": (
        "Reads a stack of attention layers as a graph: what one token contributes to a later one is the "
        "sum over all walks between them, a product of one kernel per layer.",
        "Without residual connections the product under a causal mask moves onto the first token as depth "
        "grows; windows slow this down, prefixes share it out, and decay masks and rotary encodings pull "
        "the other way.",
        "Small attention-only networks, trained to find an item in their context, are to show the same "
        "preferences, and attention sinks with them.",
    ),
    "herasimchyk2026": (
        "Takes the residual connection into the product: layer t mixes its attention, by a weight λ_t, "
        "with what the stream already holds.",
        "The collapse onto the first token then happens only if the weights λ_t have an infinite sum; "
        "over finitely many layers recent tokens keep a share, and the influence of positions can be a U "
        "with a trough between.",
        "Three levels of this prediction, from attention alone to measured λ_t and constant content, are "
        "held against the gradients of pretrained models.",
    ),
    "kim2026": (
        "Asks where a preference for recent tokens comes from when nothing encodes position.",
        "In random layers without normalisation, the scores of a second layer do not tell earlier keys "
        "apart; LayerNorm, by rescaling averages of more and of fewer tokens alike, makes scores grow "
        "towards the query.",
        "The probability that the more recent of two keys scores higher is simulated over widths, depths "
        "and angles between embeddings, with and without residual connections, beside closed forms of its "
        "mean scores.",
    ),
}
"""By citation key."""
