"""Packages in a folder as an installer leaves them: a module and its metadata."""

from pathlib import Path

from posbias.core.packages import GROUP


def install(site: Path, name: str, module: str, entries: dict[str, str], version: str = "0.3") -> None:
    """A package of one module whose entry points bring families (`entries`: family → name in the module)."""
    stem = name.replace("-", "_")
    (site / f"{stem}.py").write_text(module, encoding="utf-8")
    info = site / f"{stem}-{version}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    lines = [f"{family} = {stem}:{what}" for family, what in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n", encoding="utf-8")
