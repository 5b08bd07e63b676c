"""The rollout: the influence of every position, the engines that push its rows through the layers, a reference."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from posbias.theory.rollout.dispatch import influence, rollout, trajectory

__all__ = ["influence", "rollout", "trajectory"]
# the dense reference alone needs no compiler
__getattr__, __dir__, _ = lazy_loader.attach(__name__, submod_attrs={"dispatch": __all__})
