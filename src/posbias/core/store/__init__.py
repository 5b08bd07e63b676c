"""Finished computations, and one that is begun, on disk: each file says what it is and is verified when read.

`formats` has the kinds of files, `cells` what is kept in a folder and computed where it is missing, `checkpoint`
the state of one unfinished computation.
"""

from posbias.core.store.cells import Cell, Computed, Store, Stored, compute
from posbias.core.store.checkpoint import Checkpoint
from posbias.core.store.formats import (
    VERSION,
    Header,
    JsonCodec,
    NetCDFCodec,
    SafetensorsCodec,
    Tensors,
    digest_of_arrays,
    dump_json,
    need_xarray,
    open_netcdf,
    open_tensors,
    parse_json,
    save_json,
    undamaged,
    versions_here,
)

__all__ = [
    "VERSION",
    "Cell",
    "Checkpoint",
    "Computed",
    "Header",
    "JsonCodec",
    "NetCDFCodec",
    "SafetensorsCodec",
    "Store",
    "Stored",
    "Tensors",
    "compute",
    "digest_of_arrays",
    "dump_json",
    "need_xarray",
    "open_netcdf",
    "open_tensors",
    "parse_json",
    "save_json",
    "undamaged",
    "versions_here",
]
