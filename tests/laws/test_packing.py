"""A packed folder comes back as it was, or not at all."""

import hashlib
import json
import zipfile

import pytest
from answers import faults
from command import called

from posbias.errors import DamagedError, InputFileError, OutputFileError, SchemaError
from posbias.store.packing import CONTENTS, pack, unpack

FILES = {
    "a-1f.nc": b"a cell",
    "a-1f.safetensors": b"its weights" * 1000,
    ".b.checkpoint": b"begun",
    ".b.checkpoint.0011aabb-0.piece": bytes(range(256)) * 100,
    "cells/empty": b"",
}


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_bytes(content)
    return tmp_path / "here"


def held(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def packed_as(path, files, told=None):
    """An archive with these members, which says `told` of them or what it should."""
    right = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    }
    with zipfile.ZipFile(path, "w") as target:
        target.writestr(CONTENTS, json.dumps({"schema": 1, "files": right} | (told or {})))
        for name, data in files.items():
            target.writestr(name, data)
    return path


def test_a_folder_comes_back(folder, tmp_path):
    (folder / ".host~1~a.nc.x.nc").write_bytes(b"what a killed writer began")
    packed = pack(folder, folder / "here.zip")
    assert packed.files == {name: len(content) for name, content in FILES.items()}
    unpacked = unpack(folder / "here.zip", tmp_path / "there")
    assert held(tmp_path / "there") == FILES
    assert unpacked.written == len(FILES)
    (tmp_path / "there" / "a-1f.nc").unlink()
    assert unpack(folder / "here.zip", tmp_path / "there").written == 1
    assert held(tmp_path / "there") == FILES


def test_another_file_is_never_overwritten(folder, tmp_path):
    pack(folder, tmp_path / "a.zip")
    there = tmp_path / "there"
    there.mkdir()
    (there / "a-1f.nc").write_bytes(b"another")
    with pytest.raises(OutputFileError, match=r"a-1f.nc: another file is there"):
        unpack(tmp_path / "a.zip", there)
    assert held(there) == {"a-1f.nc": b"another"}


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out", "link/out", "a\\..\\out"])
def test_a_member_that_leaves_the_folder_is_refused(tmp_path, name):
    there, outside = tmp_path / "there", tmp_path / "outside"
    there.mkdir()
    outside.mkdir()
    (there / "link").symlink_to(outside)
    archive = packed_as(tmp_path / "a.zip", {"good": b"1", name: b"2"})
    with pytest.raises(InputFileError, match="leaves the folder"):
        unpack(archive, there)
    assert not held(there)
    assert not held(outside)


def test_a_damaged_archive_writes_nothing(folder, tmp_path):
    content = pack(folder, tmp_path / "a.zip").archive.read_bytes()
    place = content.index(b"its weights")
    for spoilt in (content[:-50], content[: place + 3] + b"X" + content[place + 4 :], b"no zip", b""):
        (tmp_path / "b.zip").write_bytes(spoilt)
        with pytest.raises(DamagedError, match="damaged"):
            unpack(tmp_path / "b.zip", tmp_path / "there")
    files = {"a": b"1"}
    wrong = {"files": {"a": {"bytes": 1, "sha256": "0" * 64}}}
    for told in (wrong, {"files": {}}, {"files": {"a": 1}}, {"files": 3}):
        with pytest.raises(DamagedError, match="damaged"):
            unpack(packed_as(tmp_path / "c.zip", files, told), tmp_path / "there")
    with pytest.raises(SchemaError, match="schema version 9"):
        unpack(packed_as(tmp_path / "c.zip", files, {"schema": 9}), tmp_path / "there")
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as other:
        other.writestr("a", "1")
    with pytest.raises(DamagedError, match="no archive of"):
        unpack(tmp_path / "d.zip", tmp_path / "there")
    with pytest.raises(InputFileError, match="no such file"):
        unpack(tmp_path / "e.zip", tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("how", ["compressed", "said to be compressed", "encrypted"])
def test_members_that_no_pack_has_are_not_decompressed(how, folder, tmp_path):
    archive = tmp_path / "pack.zip"
    pack(folder, archive)
    if how == "compressed":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
            target.writestr(CONTENTS, bytes(2**24))
    else:
        content = bytearray(archive.read_bytes())
        entry = content.index(b"PK\1\2")  # of the first member, in the directory at the end
        content[entry + (10 if how.startswith("said") else 8)] |= 8 if how.startswith("said") else 1
        archive.write_bytes(content)
    with pytest.raises(DamagedError, match=r"pack\.zip: damaged, its members are compressed or encrypted"):
        unpack(archive, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_nothing_to_pack_is_said(tmp_path):
    with pytest.raises(InputFileError, match="no such folder"):
        pack(tmp_path / "a", tmp_path / "a.zip")
    with pytest.raises(InputFileError, match="no files in it"):
        pack(tmp_path, tmp_path / "a.zip")


def test_the_commands_answer_as_their_schemas_say(folder):
    packed = called("study", "pack", "here", "--json", cwd=folder.parent)
    unpacked = called("study", "unpack", "here.zip", "--out", "there", "--json", cwd=folder.parent)
    for ended in (packed, unpacked):
        assert not ended.returncode, ended.stderr
        assert not faults(json.loads(ended.stdout))
    assert held(folder.parent / "there") == FILES
    assert (
        "0 files written, 5 were there: here"
        in called("study", "unpack", "here.zip", cwd=folder.parent).stdout
    )
    assert called("study", "unpack", "none.zip", cwd=folder.parent).returncode == 2
