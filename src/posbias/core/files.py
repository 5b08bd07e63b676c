"""Files that are either whole or not there.

A result is written to a temporary name next to its place and renamed when complete, so a full disk, a crash
or Ctrl-C leaves the old file or none, never half of one. The temporary name is hidden and says whose it is
(`.HOST~PROCESS~NAME…`), so that what a killed writer began can be cleared.
"""

import contextlib
import errno
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posbias.core.errors import InputFileError, OutputFileError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path next to `path` to write to; on success it becomes `path`, else it is removed.

    Raises `OutputFileError` when the folder or the file cannot be written.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "no ordinary file"
        raise OutputFileError(f"cannot write {target}: it is {kind}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=_prefix(target), suffix=target.suffix, dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise _cannot_write(target, error) from error
    temporary = Path(name)
    try:
        yield temporary
        _as_a_plain_file(temporary)
        temporary.replace(target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def clear_leftovers(folder: str | os.PathLike[str]) -> None:
    """Remove what writers to `folder` that were killed on this machine had begun; living ones keep theirs."""
    ours = f".{platform.node()}~"
    for path in Path(folder).glob(".*~*~*"):
        process = path.name.removeprefix(ours).partition("~")[0]
        if path.name.startswith(ours) and process.isdigit() and not _lives(int(process)):
            path.unlink(missing_ok=True)


def is_leftover(path: Path) -> bool:
    """Whether a file is what a writer, here or elsewhere, has begun."""
    return path.name.startswith(".") and path.name.count("~") >= 2


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder next to `path` to fill; on success it becomes `path`, else it is removed.

    An earlier folder at `path` is replaced only once the new one is complete. Raises `OutputFileError`.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise _cannot_write(target, error) from error
    old = temporary.with_name(temporary.name + ".old")
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        _put(temporary, target, old)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def need_writable(path: str | os.PathLike[str]) -> None:
    """Raise `OutputFileError` if nothing could be written at `path`; makes nothing, so long work can ask first."""
    target = Path(path)
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise OutputFileError(f"cannot write {target}: it is no ordinary file")
    existing = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
    folder = existing if existing.is_dir() else existing.parent
    if existing != target and not existing.is_dir():
        raise OutputFileError(f"cannot write {target}: {existing} is no folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputFileError(f"cannot write {target}: no permission in {folder}")


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write `content` to `path`, whole or not at all. Raises `OutputFileError`."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def write_text(path: str | os.PathLike[str], content: str) -> Path:
    """Write `content` as UTF-8 to `path`, whole or not at all. Raises `OutputFileError`."""
    return write_bytes(path, content.encode())


def between_marks(page: str, begin: str, end: str) -> tuple[str, str, str]:
    """What stands before, between and after two marks. Raises `InputFileError` unless there is one of each."""
    begins, ends = page.count(begin), page.count(end)
    if (begins, ends) != (1, 1) or page.index(begin) > page.index(end):
        raise InputFileError(f"page: {begins} {begin} and {ends} {end} given, one each in this order needed")
    before, rest = page.split(begin)
    held, after = rest.split(end)
    return before, held.strip("\n"), after


def write_between(path: str | os.PathLike[str], begin: str, end: str, text: str) -> None:
    """Write text between the two marks of a page. Raises as `between_marks` and `write_text`."""
    before, _, after = between_marks(Path(path).read_text(encoding="utf-8"), begin, end)
    write_text(path, f"{before}{begin}\n{text}\n{end}{after}")


def _prefix(target: Path) -> str:
    return f".{platform.node()}~{os.getpid()}~{target.name}."


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _put(folder: Path, target: Path, old: Path) -> None:
    """Give a folder the name `target`, and what has that name now the name `old`.

    Equal writers may do so at once: whatever each finds there is set aside, and the last one stays.
    """
    while True:
        with contextlib.suppress(FileNotFoundError):
            target.rename(old)
        try:
            folder.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            return


def _as_a_plain_file(path: Path) -> None:
    """Flush to the disk (which is where a full one shows) and give the permissions an ordinary file gets."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.chmod(0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cannot_write(path: Path, error: OSError) -> OutputFileError:
    return OutputFileError(f"cannot write {path}: {error.strerror or error}; nothing was left there")
