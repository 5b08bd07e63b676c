"""`posbias.mixing`: every schedule of λ, the weight of attention in each layer."""

from posbias.theory.mixing import *  # noqa: F403
