"""Everything finished, and what is begun, on disk: each file says what it is and is verified when read.

`Header` is what a file says of itself, a codec (`JsonCodec`, `NetCDFCodec`, `SafetensorsCodec`) how it is written
and read, `Store` a folder of finished cells, `Checkpoint` one unfinished computation.
"""

from posbias.core.store.checkpoint import Checkpoint
from posbias.core.store.header import Header, versions_here
from posbias.core.store.json_files import JsonCodec, dump_json, parse_json, save_json, undamaged
from posbias.core.store.netcdf_files import NetCDFCodec, need_xarray, open_netcdf
from posbias.core.store.store import Codec, Store, Stored, StoredCell
from posbias.core.store.tensor_files import SafetensorsCodec, Tensors, open_tensors

__all__ = [
    "Checkpoint",
    "Codec",
    "Header",
    "JsonCodec",
    "NetCDFCodec",
    "SafetensorsCodec",
    "Store",
    "Stored",
    "StoredCell",
    "Tensors",
    "dump_json",
    "need_xarray",
    "open_netcdf",
    "open_tensors",
    "parse_json",
    "save_json",
    "undamaged",
    "versions_here",
]
