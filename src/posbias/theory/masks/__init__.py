"""Who may attend to whom.

A mask is a relation between query i and key j. Each says with `allowed` which pairs it admits, and with
`reach` and `farthest` how far forward and back influence comes from; what else engines may ask is in `visible`.
Adding one is one file here and its name in the two lists below: commands, `--vary`, files, pictures and tests go
by them.
"""

from typing import Annotated

from pydantic import Field

from posbias.core.spec import Open, members
from posbias.theory.masks.block_sparse import BlockSparse
from posbias.theory.masks.causal import Causal, Full
from posbias.theory.masks.chunked import Chunked
from posbias.theory.masks.custom import CustomMask
from posbias.theory.masks.dilated import Dilated
from posbias.theory.masks.fixed import Fixed
from posbias.theory.masks.prefix import Prefix
from posbias.theory.masks.sliding_window import SlidingWindow

Mask = Annotated[
    Causal | SlidingWindow | Prefix | Full | Chunked | Dilated | BlockSparse | Fixed | CustomMask,
    Field(discriminator="kind"),
    Open("allowed", "reach", "farthest"),
]
"""The masks; one's own with these methods is one too."""

MASKS = members(Mask)
"""Every class of the union, for commands, tests, menus and tables."""
