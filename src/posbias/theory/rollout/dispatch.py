"""From an architecture to the influence of every position: the rollout P = R_T ⋯ R_1.

Row i of P says how much of each input token reaches token i through all layers. It is pushed as a row vector
from the top layer to the bottom, each layer by the fastest engine that is exact for it:

- `sweep`: exponential families (NoPE, ALiBi, decay), O(tokens · heads); all layers together where the mask is
  causal, chunk by chunk where it cuts the text (`pieces`), layer by layer under windows, prefixes and full masks;
- `fft`: any other logits by distance under causal, window and chunked masks, O(tokens · log² tokens · heads);
- `stream`: everything, O(tokens² · heads) time and O(tokens) memory.

A mask may cut the text into causal texts of its own. A query then sees the keys of its own piece alone, so each
piece goes through the layer by itself; the first token of the text stands in the first piece only, and in others
there is no first column. Layers that are cut alike (not at all, if they are causal) are swept in one go.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import cycle, groupby, islice, pairwise

import numpy as np
from jaxtyping import Float

from posbias.core import machine
from posbias.core.errors import one_of, position, whole, wrong
from posbias.core.progress import Event, OnEvent
from posbias.profiles.profile import Profile
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.configs import AnyArchitecture, load_architecture
from posbias.theory.content import ConstantDiagonal
from posbias.theory.masks import Banded, Causal, Split, is_causal
from posbias.theory.mixing import PerLayer
from posbias.theory.normalisers import Softmax
from posbias.theory.positional import DenseLogits
from posbias.theory.rollout.kernel import Kernel, Row
from posbias.theory.rollout.sweep import Plan, plan, plan_bytes, sweep
from posbias.theory.rollout.sweep import push as push_swept

Push = Callable[[Layer, float, Row], tuple[Row, float]]
Stack = Sequence[tuple[Layer, str]]
"""All layers, bottom first, each with the name of its engine."""
METHODS = ("auto", "sweep", "fft", "stream")
FEW = 2048
"""Up to this many tokens the stream is about as fast as the transforms."""
SHORT = 16
"""Pieces of a text up to this long are streamed: one by one they would cost more than their sums save."""
LARGEST = 50.0
"""First-column logits and learned sinks beyond this are left to the stream, which takes every row's maximum."""


def influence(
    architecture: AnyArchitecture,
    tokens: int,
    query: int = -1,
    *,
    method: str = "auto",
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> Profile:
    """The rollout's row of one token: the influence p(j) of every position j on `query`.

    `tokens` is the length of the text, `query` a 0-based position (negative counts from the end), `threads`
    the number of cores to use (default: all; the result does not depend on it). `method` forces an engine
    (see the module) for all layers; what was used is the profile's `method`. `on_event` hears of each
    layer beyond 2,048 tokens, unless all are swept in one go. The profile's mass is float64; with what learned
    sinks took, or rows lack of one (`.missing_mass`), it sums to 1. Entries are within 1e-12 relative of the dense
    product (below 1e-250 they may be 0), within `convolution.TOLERANCE` per layer that `fft` took. Raises
    `InvalidValueError` for tokens < 1, a query outside, a size that memory cannot hold, a method that a layer does
    not allow, or a row that sums to more than 1. Source: Herasimchyk et al. 2026, Eqs. (2) to (4).
    """
    architecture = load_architecture(architecture)
    machine.require(plan_bytes(architecture.stack, whole("tokens", tokens, 1)), "tokens", tokens)
    place = position("query", query, tokens)
    mass, lost, used = _row(architecture, tokens, place, method, machine.cores(threads), on_event)
    return Profile(
        mass,
        query=place,
        measures="rollout",
        missing_mass=lost,
        left_out=architecture.left_out(tokens),
        model=architecture.name,
        assumptions=architecture.assumptions_at(tokens),
        exact=all(layer.positional.exact for layer in architecture.layers),
        method=used,
    )


def rollout(
    architecture: AnyArchitecture,
    tokens: int,
    *,
    rows: Sequence[int] | None = None,
    method: str = "auto",
    threads: int | None = None,
) -> Kernel:
    """The rollout matrix P, n×n float64, or its chosen `rows` (positions; negative count from the end).

    Row i is the influence of every position on token i. Rows sum to 1, or to less by what learned sinks
    take. `method` and `threads` as in `influence`. Raises `InvalidValueError` for tokens < 1, a row outside,
    or a matrix that memory cannot hold. Source: Herasimchyk et al. 2026, §3.
    """
    architecture = load_architecture(architecture)
    whole("tokens", tokens, 1)
    wanted = range(tokens) if rows is None else rows
    machine.require(8 * len(wanted) * tokens, "tokens", tokens)
    positions = [position("query", row, tokens) for row in wanted]
    matrix = np.zeros((len(positions), tokens))

    def fill(place: int) -> None:
        matrix[place] = _row(architecture, tokens, positions[place], method, 1)[0]

    with ThreadPoolExecutor(machine.cores(threads)) as pool:
        list(pool.map(fill, range(len(positions))))
    return matrix


def trajectory(
    architecture: AnyArchitecture,
    tokens: int,
    query: int = -1,
    *,
    method: str = "auto",
    threads: int | None = None,
) -> list[Profile]:
    """The influence on `query` after t = 0 … T layers: the profiles of the rollouts R_t ⋯ R_1.

    The first is the query alone, the last equals `influence`. Arguments and errors as in `influence`.
    """
    architecture = load_architecture(architecture)
    machine.require(8 * whole("tokens", tokens, 1) * (architecture.depth + 3), "tokens", tokens)
    place = position("query", query, tokens)
    alone = np.zeros(tokens)
    alone[place] = 1.0
    assumed = architecture.mixing.assumed
    remarks = (*architecture.remarks, assumed) if assumed else architecture.remarks
    left_out = architecture.left_out(tokens)

    def after(depth: int) -> Profile:
        mixing = PerLayer(tuple(architecture.coefficients[:depth].tolist()))
        streams = architecture.streams
        if streams is not None:
            streams = replace(streams, connections=streams.of(architecture.depth)[:depth])
        part = Architecture(depth, architecture.stack[:depth], mixing, architecture.name, remarks, streams)
        return replace(influence(part, tokens, place, method=method, threads=1), left_out=left_out)

    first = Profile(alone, query=place, left_out=left_out, model=architecture.name)
    with ThreadPoolExecutor(machine.cores(threads)) as pool:
        return [first, *pool.map(after, range(1, architecture.depth + 1))]


def engine(layer: Layer, tokens: int) -> str:
    """The fastest engine that is exact for a layer on a text of `tokens` tokens: sweep, fft or stream."""
    possible = engines(layer)
    # a mean piece, where the mask cuts the text
    pieces = len(layer.mask.pieces(tokens)) if isinstance(layer.mask, Split) else 0
    length = tokens / pieces if pieces else tokens
    if ("fft" in possible and length <= FEW) or (pieces and length <= SHORT):
        return "stream"
    return possible[0]


def engines(layer: Layer) -> list[str]:
    """The engines that can take a layer, the fastest for long texts first."""
    mask = layer.mask
    if isinstance(layer.positional, DenseLogits) or not isinstance(mask, Banded | Split):
        return ["stream"]
    if not isinstance(layer.normaliser, Softmax) or layer.query_scale is not None:
        return ["stream"]
    fixed = layer.head_logits
    if fixed.slopes is not None:
        large = max(np.abs(fixed.first).max(), np.where(np.isfinite(fixed.sinks), fixed.sinks, 0.0).max())
        return ["stream"] if large > LARGEST else ["sweep", "stream"]
    return ["stream"] if isinstance(mask, Banded) and not mask.band().looks_back else ["fft", "stream"]


def _row(
    architecture: Architecture,
    tokens: int,
    place: int,
    method: str,
    threads: int,
    on_event: OnEvent | None = None,
) -> tuple[Row, float, dict[str, int]]:
    """Mass over positions, mass lost to learned sinks, and how many layers each engine took."""
    reach = _reach(architecture, tokens, place)
    # what no token that matters can see plays no part
    row = np.zeros(reach + 1)
    row[place] = 1.0
    # a row may be cut below the text's length
    layers = [layer.at(tokens) for layer in architecture.layers]
    chosen = [_choose(layer, reach + 1, method) for layer in layers]
    stack = list(islice(cycle(zip(layers, chosen, strict=True)), architecture.depth))
    if architecture.streams is not None:
        row, lost = _through_streams(architecture, stack, row)
    else:
        row, lost = _through_layers(architecture, stack, row, threads, on_event if tokens > FEW else None)
    mass = np.zeros(tokens)
    mass[: reach + 1] = row
    return mass, lost, dict(Counter(name for _, name in stack))


def _through_layers(
    architecture: Architecture, stack: Stack, row: Row, threads: int, on_event: OnEvent | None
) -> tuple[Row, float]:
    """A row through all layers, and what their sinks take; those that are cut alike are swept in one go."""
    layers = [
        (layer, lam, name, starts(layer, len(row)) if name == "sweep" else None)
        for (layer, name), lam in zip(stack, architecture.coefficients.tolist(), strict=True)
    ][::-1]
    groups = [list(group) for _, group in groupby(layers, key=lambda one: one[3])]
    parts = [part for group in groups for part in ([group] if group[0][3] else [[one] for one in group])]
    lost, done = 0.0, 0
    for part in parts:
        if on_event is not None and len(parts) > 1:
            on_event(Event(done, len(layers), "layers"))
        swept, mixing, (name, *_), (cut, *_) = zip(*part[::-1], strict=True)
        if cut is not None:
            row, taken = sweep_pieces(swept, np.array(mixing), row, cut, threads)
        else:
            row, taken = _pushed(name, swept[0], mixing[0], row)
        lost, done = lost + taken, done + len(part)
    if on_event is not None and len(parts) > 1:
        on_event(Event(done, done, "layers"))
    return row, lost


def _through_streams(architecture: Architecture, stack: Stack, row: Row) -> tuple[Row, float]:
    """A row through all layers of hyper-connected streams: attention by the layer's engine, once per layer."""
    assert architecture.streams is not None
    states, lost = architecture.streams.begin(row), 0.0
    connections = architecture.streams.of(architecture.depth)
    parts = zip(stack, architecture.coefficients, connections, strict=True)
    for (layer, name), lam, connection in list(parts)[::-1]:
        states, taken = connection.push(float(lam), states, partial(_pushed, name, layer, 1.0))
        lost += taken
    return states.sum(axis=0), lost


def _reach(architecture: Architecture, tokens: int, place: int) -> int:
    """The last position that matters to a token: what one layer's mask lets it see, another's may lead on."""
    masks = {layer.mask for layer in architecture.layers}
    while (further := max(mask.reach(place, tokens) for mask in masks)) > place:
        place = further
    return place


def _pushed(name: str, layer: Layer, mixing: float, row: Row) -> tuple[Row, float]:
    """A row through one layer by the engine of that name, and what the layer's sink takes."""
    from posbias.theory.rollout import convolution, stream

    push = {"sweep": push_swept, "fft": convolution.push, "stream": stream.push}[name]
    if name != "stream" and isinstance(layer.mask, Split):
        return push_pieces(push, layer, mixing, row)
    return push(layer, mixing, row)


def _choose(layer: Layer, tokens: int, method: str) -> str:
    if one_of("method", method, METHODS) == "auto":
        return engine(layer, tokens)
    if method not in engines(layer):
        of = f"{type(layer.positional).__name__} under {type(layer.mask).__name__}"
        raise wrong("method", f"{' or '.join(engines(layer))} for {of}", method)
    return method


# --- masks that cut the text -----------------------------------------------------------------------------------


def starts(layer: Layer, tokens: int) -> tuple[int, ...] | None:
    """Where the causal texts begin that a layer's mask makes of one: (0,) where it is causal; None of others."""
    if isinstance(layer.mask, Split):
        return layer.mask.pieces(tokens)
    return (0,) if is_causal(layer.mask, tokens) else None


def push_pieces(push: Push, layer: Layer, mixing: float, row: Row) -> tuple[Row, float]:
    """row · R of one layer whose mask cuts the text, each piece by the engine `push`; and what its sink takes."""
    pieces = {first: alone(layer, first) for first in (True, False)}
    cuts = starts(layer, len(row)) or (0,)
    return _by_pieces(cuts, row, lambda first, piece: push(pieces[first], mixing, piece))


def sweep_pieces(
    stack: Sequence[Layer], mixing: Float[np.ndarray, "layer"], row: Row, cuts: Sequence[int], threads: int
) -> tuple[Row, float]:
    """row · R_T ⋯ R_1 of layers that all cut the text at `cuts`, by the fused sweep; and what their sinks take."""
    if len(cuts) == 1:
        return sweep(plan(stack, mixing, len(row)), row, threads)

    @cache
    def planned(first: bool, tokens: int) -> Plan:
        return plan([alone(layer, first) for layer in stack], mixing, tokens)

    return _by_pieces(cuts, row, lambda first, piece: sweep(planned(first, len(piece)), piece, threads))


def alone(layer: Layer, first: bool) -> Layer:
    """A layer as a piece of the text sees it: causal, and with the first column in the first piece alone."""
    if first or not layer.head_logits.first.any():
        return replace(layer, mask=Causal())
    diagonal = layer.content.diagonal_of(layer.heads, layer.groups)
    constant = getattr(layer.content, "constant", (0.0,))
    return replace(layer, mask=Causal(), content=ConstantDiagonal(tuple(diagonal.tolist()), constant))


def _by_pieces(
    cuts: Sequence[int], row: Row, push: Callable[[bool, Row], tuple[Row, float]]
) -> tuple[Row, float]:
    """Each piece of a row that is not empty of influence by `push` (whether it is the first, and the piece)."""
    out, lost = np.zeros(len(row)), 0.0
    for start, stop in pairwise([*cuts, len(row)]):
        if row[start:stop].any():
            out[start:stop], taken = push(start == 0, row[start:stop])
            lost += taken
    return out, lost
