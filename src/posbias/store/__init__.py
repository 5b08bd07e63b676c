"""Everything finished, and what is begun, on disk: each file says what it is and is verified when read.

`Header` is what a file says of itself, a codec (`JsonCodec`, `NetCDFCodec`, `SafetensorsCodec`) how it is written
and read, `Store` a folder of finished cells, `Checkpoint` one unfinished computation.
"""

from posbias.store.checkpoint import Checkpoint
from posbias.store.header import Header, versions_here
from posbias.store.json_files import JsonCodec, dump_json, parse_json, save_json
from posbias.store.measurements import load_measurement, load_retrieval, save_measurement, save_retrieval
from posbias.store.netcdf_files import NetCDFCodec, need_xarray, open_netcdf
from posbias.store.store import Codec, Store, Stored, StoredCell, set_aside
from posbias.store.tensor_files import SafetensorsCodec, Tensors, open_tensors

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
    "load_measurement",
    "load_retrieval",
    "need_xarray",
    "open_netcdf",
    "open_tensors",
    "parse_json",
    "save_json",
    "save_measurement",
    "save_retrieval",
    "set_aside",
    "versions_here",
]

_MOVED = {"load_profile": "posbias.predictors", "profile_as_dict": "posbias.predictors"}


def __getattr__(name: str):
    """Names of 0.1 that now lie above the store; they work until 0.3."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    import warnings

    warnings.warn(
        f"posbias.store.{name} is now {_MOVED[name]}.{name}; the old name goes with 0.3",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(importlib.import_module(_MOVED[name]), name)
