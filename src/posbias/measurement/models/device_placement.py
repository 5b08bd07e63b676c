"""In which numbers, and where, a model's weights are held.

One device, or several through accelerate's device map: a strategy ("auto" fills GPUs, then memory, then disk) or
a map from modules to devices. What this machine does not have is refused before anything is loaded.
"""

import gc
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from posbias.core import memory
from posbias.core.arguments import one_of, shortened
from posbias.core.errors import InputFileError, InvalidValueError
from posbias.measurement.models.hub import has_safetensors

DTYPES = ("float32", "bfloat16", "float16", "auto")
STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")

DeviceMap = str | Path | Mapping[str, Any] | None
"""A strategy, a file, or the device of each module: its number, its name, or disk."""


@dataclass(frozen=True)
class Placement:
    """Where weights go and as what: `dtype` "auto" is the one they are stored in, `map` overrides `device`."""

    dtype: torch.dtype | str = torch.float32
    device: torch.device = torch.device("cpu")  # noqa: RUF009
    map: str | dict[str, int | str] | None = None

    @classmethod
    def of(cls, dtype: str, device: str, device_map: DeviceMap) -> "Placement":
        """Check what was asked. Raises `InvalidValueError`, or `InputFileError` for a bad file of a map."""
        one_of("dtype", dtype, DTYPES)
        place = _device(device)
        if device_map is not None and device != "cpu":
            raise InvalidValueError(
                f"device: {shortened(device)} given with device_map, which says where; one needed"
            )
        return cls(dtype if dtype == "auto" else getattr(torch, dtype), place, _map(device_map))

    @property
    def to_disk(self) -> bool:
        """Whether weights may stay on disk."""
        return isinstance(self.map, str) or (self.map is not None and "disk" in self.map.values())

    def need_memory(self, folder: Path, stored: Any) -> None:
        """Raise `InvalidValueError` when the weights in `folder` do not fit this machine's memory.

        `stored` is the dtype that the configuration says they are stored in, or None. Only for one device: of
        maps accelerate knows more.
        """
        if self.map is not None:
            return
        pattern = "*.safetensors" if has_safetensors(folder) else "pytorch_model*.bin"
        size = sum(file.stat().st_size for file in folder.glob(pattern))
        stored = stored if isinstance(stored, torch.dtype) else torch.float32
        held = self.dtype if isinstance(self.dtype, torch.dtype) else stored
        needed = size * held.itemsize // stored.itemsize
        require_on(self.device, needed, "model", f"{folder.name} in {str(held).removeprefix('torch.')}")


def devices() -> list[str]:
    """Return the names of the devices that torch sees here, the CPU first."""
    if not torch.accelerator.is_available():
        return ["cpu"]
    kind = torch.accelerator.current_accelerator().type  # pyright: ignore[reportOptionalMemberAccess]
    return ["cpu", kind, *(f"{kind}:{number}" for number in range(torch.accelerator.device_count()))]


def require_on(device: torch.device, needed: int, argument: str, given: object) -> None:
    """Raise `InvalidValueError` naming `argument` if `needed` bytes are more than a device says are free.

    Memory that torch holds of a GPU and nobody uses counts as free. Devices that say nothing are not asked.
    """
    if device.type == "cpu":
        memory.require(needed, argument, given)
    elif device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        memory.require(needed, argument, given, free, str(device))


def let_go() -> None:
    """Give back what models that nobody holds any more have on GPUs, so that the next one finds the room free."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _device(device: str) -> torch.device:
    if device not in devices():
        raise InvalidValueError(
            f"device: {shortened(device)} given, one of {', '.join(devices())} needed on this machine"
        )
    return torch.device(device)


def _map(given: DeviceMap) -> str | dict[str, int | str] | None:
    if given is None or (isinstance(given, str) and given in STRATEGIES):
        return given  # pyright: ignore[reportReturnType]
    needed = f"one of {', '.join(STRATEGIES)}, or modules with their devices (a JSON file) needed"
    if isinstance(given, str | Path):
        if not Path(given).is_file():
            raise InvalidValueError(f"device_map: {shortened(str(given))} given, {needed}")
        try:
            content = json.loads(Path(given).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputFileError(f"device_map: {given} cannot be read as JSON: {error}") from error
    else:
        content = dict(given)
    if not isinstance(content, dict) or not content:
        raise InvalidValueError(f"device_map: {shortened(content)} given, {needed}")
    for module, place in content.items():
        known = [*devices(), "disk", *range(len(devices()) - 2)]
        if isinstance(place, bool) or place not in known:
            raise InvalidValueError(
                f"device_map: {shortened(place)} given for {module!r}, here are {', '.join(map(repr, known))}"
            )
    if "disk" in content.values():
        _need_apart(list(content))
    return content


def _need_apart(modules: list[str]) -> None:
    """Refuse a module beside one that contains it: what stays on disk would be put in memory with the other."""
    for outer, inner in itertools.permutations(modules, 2):
        if outer == "" or inner.startswith(f"{outer}."):
            raise InvalidValueError(
                f"device_map: {outer!r} and {shortened(inner)} given, "
                "the first contains the second; with 'disk' among "
                "the devices, modules that do not contain each other needed"
            )
