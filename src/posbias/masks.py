"""`posbias.masks`: every mask, by whose rule a token sees others."""

from posbias.theory.masks import *  # noqa: F403
