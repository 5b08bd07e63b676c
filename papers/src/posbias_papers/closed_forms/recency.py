"""LayerNorm-induced recency of two or three tokens in full digits: no large dimension, no sampling.

Scores depend on the embeddings through their Gram matrix alone, and that of n normal embeddings is the one of
n short vectors (Bartlett): token 0 on an axis, token 1 in a plane with it, token 2 in a space with both. Each
is a mean in the direction of the tokens before it plus a noise of independent length (a chi variate) and
angles (densities sin^k). Three numbers for two tokens, six for three: few enough for a product of Gauss rules,
one made for each density, which takes all that sampling would average over into 10 to 16 nodes per number.
Whether S_21 > S_20 jumps, so of that chance one number is taken analytically: the noise along y_1 − y_0, with
which S_21 − S_20 rises, is normal, and where the difference is zero is found by bisection.

More tokens have no such answer here (four would need ten numbers): they are left to `posbias.simulation`. The
closed forms for large dimensions, at any number of tokens, are in `posbias_papers.closed_forms.layernorm`.

    exact_scores(3, 16, 0.5).rises.value[1]          # S_21 − S_20 of the second layer: 0.12159262
    recency_excess(16, 0.5).value[1]                 # recency probability − ½: 0.0734968

Positions count from 0, layers from 0 in arrays. Model: Kim et al. 2026, Eqs. 1, 2, 6 and 20.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from posbias.core import machine
from posbias.core.errors import InvalidValueError, one_of, whole
from posbias_papers.closed_forms.layernorm import NODES, correlation_rule
from posbias_papers.closed_forms.quadrature import Column, angles, blocks, lengths

NormName = Literal["layernorm", "rmsnorm", "none"]
REACH = 15.0
"""Standard deviations within which the noise at which S_21 = S_20 is looked for."""


@dataclass(frozen=True)
class Integral:
    """Expected values, and how far each moved from a rule with two nodes fewer per variable, plus rounding.

    That is the error of the coarser rule, and more than that of `value`; but with the least dimensions, where
    rules converge slowly, only of its order. Equal shapes.
    """

    value: Float[np.ndarray, "..."]
    error: Float[np.ndarray, "..."]


@dataclass(frozen=True)
class ExactScores:
    """Expected scores [layer, query, key], NaN above the diagonal, and `rises` of the last query [layer].

    A rise is S_i,i−1 − S_i0 with i the last token: 0 for two tokens, and in the first layer; free of the
    cancellation between the two scores' common part.
    """

    scores: Integral
    rises: Integral


def exact_scores(
    tokens: int,
    dimension: int,
    anisotropy: float = 0.0,
    *,
    norm: NormName = "layernorm",
    residual: bool = False,
    depth: int = 2,
    nodes: int | None = None,
) -> ExactScores:
    """The expected scores of layers 1 to `depth` of two or three tokens, at any dimension.

    Two tokens with a norm and no residual are one integral over their correlation, right to rounding. Else
    `nodes` per variable (default 40 for two tokens, 10 for three, 24 without anisotropy) give 7 digits at
    d = 16, 11 at d = 64, but 4 at d = 8 with much anisotropy and 3 at d = 4; time and memory grow with their
    sixth and fourth power.

    Raises `InvalidValueError` for tokens other than 2 or 3, α outside [0, 1), an unknown norm, depth < 1,
    nodes < 4, or dimension < tokens (with LayerNorm, which takes one away: ≤ tokens).
    """
    if tokens not in (2, 3):
        raise InvalidValueError(f"tokens: {tokens} given, 2 or 3 needed (simulate for more)")
    model = _Model(tokens, dimension, anisotropy, norm, residual, machine.length("depth", depth, each=72))
    if nodes is None:
        few, many = (40, NODES) if tokens == 2 else (10, 24)
        nodes = many if model.lengthless or (tokens == 2 and model.directional) else few
    count = machine.length("nodes", nodes, 4, each=64)
    (scores, rises), (other_scores, other_rises) = (_expected_scores(model, k) for k in (count, count - 2))
    rounding = np.finfo(float).eps * np.nanmax(np.abs(scores))
    return ExactScores(
        Integral(scores, np.abs(scores - other_scores) + rounding),
        Integral(rises, np.abs(rises - other_rises) + rounding),
    )


def recency_excess(
    dimension: int,
    anisotropy: float = 0.0,
    *,
    norm: NormName = "layernorm",
    residual: bool = False,
    depth: int = 2,
    nodes: int | None = None,
) -> Integral:
    """The recency probability P(S_21 > S_20) of three tokens less one half, in layers 1 to `depth`.

    0 in the first layer, where tokens are alike, and in the second without a norm. Right also where it is tiny:
    with `nodes` per variable (default 8, 16 where only directions count) to 6 digits in the second layer at
    d = 16, to 4 in the third; without a norm to 4 and 2. S_21 − S_20 rises with the noise of token 2 along
    y_1 − y_0 and so has one zero (from the third layer on this is tested, not proved). Raises
    `InvalidValueError` as `exact_scores`.
    """
    model = _Model(3, dimension, anisotropy, norm, residual, whole("depth", depth, 1))
    count = whole("nodes", nodes if nodes is not None else 16 if model.lengthless else 8, 4)
    fine, coarse = _expected_excess(model, count), _expected_excess(model, count - 2)
    return Integral(fine, np.abs(fine - coarse) + np.finfo(float).eps)


# --- the model on a node -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    tokens: int
    dimension: int
    anisotropy: float
    norm: NormName
    residual: bool
    depth: int

    def __post_init__(self):
        one_of("norm", self.norm, get_args(NormName))
        whole("dimension", self.dimension, self.tokens + (self.norm == "layernorm"))
        if not 0.0 <= self.anisotropy < 1.0:
            raise InvalidValueError(f"anisotropy: {self.anisotropy} given, a number in [0, 1) needed")

    @property
    def freedom(self) -> int:
        """Dimensions in which directions differ: LayerNorm takes one away."""
        return self.dimension - (self.norm == "layernorm")

    @property
    def directional(self) -> bool:
        """Whether scores depend on the directions of the embeddings alone."""
        return self.norm != "none" and not self.residual

    @property
    def lengthless(self) -> bool:
        """Whether the lengths of the noises do not matter: they are the tokens' own."""
        return self.directional and self.anisotropy == 0.0

    @property
    def factor(self) -> Float[np.ndarray, "token noise"]:
        """The Cholesky factor of the tokens' covariance 1 + α/(1−α) and α/(1−α) per coordinate, over d."""
        shared = self.anisotropy / (1.0 - self.anisotropy)
        return np.linalg.cholesky((np.eye(self.tokens) + shared) / self.dimension)

    def scores(self, tokens: Sequence[Sequence[Column]]) -> list[list[list[Column]]]:
        """S_ij = [layer][query][key ≤ query] for tokens given by their coordinates."""
        n, layers = self.tokens, []
        inner = [
            [sum(a * b for a, b in zip(tokens[i], tokens[j], strict=True)) for j in range(n)]
            for i in range(n)
        ]
        for _ in range(self.depth):
            length = [np.sqrt(inner[i][i] / self.dimension) if self.norm != "none" else 1.0 for i in range(n)]
            inner = [[inner[i][j] / (length[i] * length[j]) for j in range(n)] for i in range(n)]
            layers.append([[inner[i][j] / math.sqrt(self.dimension) for j in range(i + 1)] for i in range(n)])
            weights = [_softmax(row) for row in layers[-1]]
            for i in range(n if self.residual else 0):
                weights[i][i] = weights[i][i] + length[i]
            mixed = [[_combine(weights[i], inner[j]) for j in range(n)] for i in range(n)]
            inner = [[_combine(weights[j], mixed[i]) for j in range(n)] for i in range(n)]
        return layers


def _softmax(scores: Sequence[Column]) -> list[Column]:
    top = scores[0]
    for score in scores[1:]:
        top = np.maximum(top, score)
    weights = [np.exp(score - top) for score in scores]
    total = sum(weights)
    return [weight / total for weight in weights]


def _combine(weights: Sequence[Column], columns: Sequence[Column]) -> Column:
    """Σ w_k·c_k over the weights there are."""
    return sum(weight * column for weight, column in zip(weights, columns, strict=False))


def _first_two(model: _Model, first: Column, second: Column, angle: Column) -> list[list[Column]]:
    """Tokens 0 and 1 in their plane, from the lengths of two noises and the angle between them."""
    factor = model.factor
    along, across = second * np.cos(angle), second * np.sin(angle)
    one = [factor[1, 0] * first + factor[1, 1] * along, factor[1, 1] * across]
    return [[factor[0, 0] * first, 0.0 * across], one]


def _third(
    model: _Model, first: Column, second: Column, angle: Column
) -> tuple[Callable[[Column, Column, Column], list[list[Column]]], Column]:
    """Token 2, given the first two, as a function of its noise, and its mean along y_1 − y_0.

    The noise is given by its parts along y_1 − y_0, across it in the plane, and out of the plane; the mean in
    units of the noise's standard deviation.
    """
    factor = model.factor
    zero, one = _first_two(model, first, second, angle)
    mean = [
        factor[2, 0] * first + factor[2, 1] * second * np.cos(angle),
        factor[2, 1] * second * np.sin(angle),
    ]
    if model.norm == "none":
        u, w = one[0] - zero[0], one[1]
    else:
        size = np.hypot(*one)
        u, w = one[0] / size - 1.0, one[1] / size
    size = np.hypot(u, w)
    u, w, spread = u / size, w / size, factor[2, 2]

    def tokens(along: Column, across: Column, out: Column) -> list[list[Column]]:
        two = [mean[0] + spread * (along * u - across * w), mean[1] + spread * (along * w + across * u)]
        nothing = 0.0 * two[0]
        return [[*zero, nothing], [*one, nothing], [*two, spread * out]]

    return tokens, (mean[0] * u + mean[1] * w) / spread


# --- expectations ------------------------------------------------------------------------------------------


def _expected_scores(
    model: _Model, nodes: int
) -> tuple[Float[np.ndarray, "layer query key"], Float[np.ndarray, "layer"]]:
    freedom, n = model.freedom, model.tokens
    pair_alone = n == 2 and model.directional
    if pair_alone:
        rules = [correlation_rule(freedom, model.anisotropy, nodes)]
    else:
        radii = lengths(freedom, 1 if model.lengthless else nodes)
        rules = [radii, radii, angles(freedom - 2, nodes)]
        if n == 3:
            rules += [radii, angles(freedom - 2, nodes), angles(freedom - 3, nodes)]
    scores = np.where(np.tri(n, dtype=bool), np.zeros((model.depth, n, n)), np.nan)
    rises = np.zeros(model.depth)
    for values, weights in blocks(rules):
        if pair_alone:
            z = values[0] + math.atanh(model.anisotropy)  # Fisher's: cosine tanh z, sine 1/cosh z
            tokens = [[np.ones_like(z), 0.0 * z], [np.tanh(z), 1.0 / np.cosh(z)]]
        elif n == 2:
            tokens = _first_two(model, *values)
        else:
            *pair, length, polar, around = values
            across = length * np.sin(polar)
            tokens = _third(model, *pair)[0](
                length * np.cos(polar), across * np.cos(around), across * np.sin(around)
            )
        layers = model.scores(tokens)
        for layer, query in itertools.product(range(model.depth), range(n)):
            for key in range(query + 1):
                scores[layer, query, key] += np.sum(weights * layers[layer][query][key])
        for layer in range(1, model.depth):
            rise = _last_rise(layers[layer]) - _last_rise(layers[0])  # the latter's mean is zero
            rises[layer] += np.sum(weights * rise)
    return scores, rises


def _expected_excess(model: _Model, nodes: int) -> Float[np.ndarray, "layer"]:
    freedom = model.freedom
    radii = lengths(freedom, 1 if model.lengthless else nodes)
    rules = [radii, radii, angles(freedom - 2, nodes)]
    rules += [lengths(freedom - 1, nodes), angles(freedom - 3, nodes)]
    excess = np.zeros(model.depth)
    for values, weights in blocks(rules):
        *pair, length, around = values
        third, mean = _third(model, *pair)
        across, out = length * np.cos(around), length * np.sin(around)
        alike = ndtr(mean)  # the chance in the first layer, one half on average
        for layer in range(1, model.depth):
            zero = _bisect(lambda z: _last_rise(model.scores(third(z, across, out))[layer]), weights.shape)  # noqa: B023
            excess[layer] += np.sum(weights * (ndtr(-zero) - alike))
    return excess


def _last_rise(scores: list[list[Column]]) -> Column:
    return scores[-1][-2] - scores[-1][0]


def _bisect(rising: Callable[[Column], Column], shape: tuple[int, ...]) -> Float[np.ndarray, "node"]:
    """Where a rising function passes zero within ± `REACH`; the nearer end where it does not."""
    low, high = np.full(shape, -REACH), np.full(shape, REACH)
    for _ in range(56):
        middle = 0.5 * (low + high)
        above = rising(middle) > 0.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 0.5 * (low + high)
