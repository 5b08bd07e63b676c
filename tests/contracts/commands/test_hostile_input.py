"""What files, streams and surroundings may ask of a command: one clear line, the right exit code, in bounded time.

Every case is a process of its own, with ten seconds and four gigabytes of addresses.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from command import called
from hypothesis import given
from hypothesis import strategies as st

from posbias.errors import InputFileError
from posbias.input_files import DEEPEST, LARGEST, MOST_WRITTEN, read_mapping
from posbias.logs import MOST, one_line

SECONDS, ADDRESSES = 60, 6 * 2**30


def ran(*words, cwd=None, shell=None, before="", **environment):
    """What `posbias WORDS` prints and how it ends, as a process (`before`, `shell`: in such a line of a shell)."""
    command = [sys.executable, "-m", "posbias", *map(str, words)]
    if shell is not None:
        command = ["bash", "-c", f'{before} "$0" "$@" {shell}', *command]
    return subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES)),
    )


def refused(done, *said):
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr[-2000:]
    assert lines[-1].startswith("posbias: "), lines
    assert len(lines[-1]) <= MOST + len("posbias: ")
    assert "Traceback" not in done.stderr
    for words in said:
        assert words in lines[-1]


# ── files ──


def bomb(levels, width=10):
    lines = [f"a0: &a0 [{', '.join('x' * width)}]"]
    return "\n".join(lines + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)])


FILES = {
    "bomb.yaml": (bomb(10), "values, aliases written out"),
    "deep.yaml": ("[" * 50_000, "nested too deeply"),
    "deep.json": ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
    "deep.toml": ("a." * 100_000 + "b = 1", "nested too deeply"),
    "itself.yaml": ("a: &a [*a]", "alias *a stands inside what it names"),
    "many.json": ("[" + "0," * 2**22 + "0]", "more than"),
    "key.toml": (f'"{"k" * 10**6}" = 1', "kkk"),
    "nul.toml": ("depth = 1\0", "not valid TOML"),
    "layers.json": (
        json.dumps({"model_type": "llama", "num_hidden_layers": 10**9, "num_attention_heads": 8}),
        "num_hidden_layers: 1000000000 given, an integer from 1 to 100,000 needed",
    ),
    "types.json": (
        json.dumps(
            {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "layer_types": 7}
        ),
        "layer_types: 7 given",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_asks_for_too_much_is_refused(name, tmp_path):
    content, said = FILES[name]
    (tmp_path / name).write_text(content, encoding="utf-8")
    refused(called("predict", tmp_path / name), said)


def test_a_file_of_more_bytes_than_values_take_is_not_read(tmp_path):
    with (tmp_path / "large.toml").open("wb") as file:
        file.truncate(LARGEST + 1)
    refused(called("predict", tmp_path / "large.toml"), f"at most {LARGEST:,} needed")


@given(st.integers(1, 5), st.integers(1, 12))
def test_aliases_count_as_what_they_stand_for(levels, width):
    text = bomb(levels, width)
    expanded = [1 + width]
    for _ in range(1, levels):
        expanded.append(1 + width * expanded[-1])
    written = 1 + sum(1 + size for size in expanded)  # the mapping, and each key with its value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "aliases.yaml"
        path.write_text(text, encoding="utf-8")
        if written > MOST_WRITTEN:
            with pytest.raises(InputFileError, match="values, aliases written out"):
                read_mapping(path)
        else:
            assert read_mapping(path) == yaml.safe_load(text)


@pytest.mark.parametrize(("suffix", "wrap"), [("json", '{{"a": {}}}'), ("yaml", "a: {}"), ("toml", "a = {}")])
def test_nesting_up_to_the_bound_is_read(suffix, wrap, tmp_path):
    path = tmp_path / f"nested.{suffix}"
    path.write_text(wrap.format("[" * (DEEPEST - 2) + "]" * (DEEPEST - 2)))
    assert list(read_mapping(path)) == ["a"]


def test_long_words_and_dotted_values_are_not_taken_for_nesting(tmp_path):
    path = tmp_path / "words.toml"
    path.write_text('a = "' + "word. " * 500 + '"\nb = [' + "0.5, " * 500 + "]\n" + "c.d.e.f = 1\n")
    assert read_mapping(path)["c"] == {"d": {"e": {"f": 1}}}


@pytest.mark.parametrize(
    "words", [("predict", "{}"), ("predict", "{}", "--tokens", "64"), ("compare", "{}", "{}")]
)
def test_a_pipe_or_a_device_is_not_opened(words, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(ran(*(word.format(tmp_path / "pipe") for word in words)), "a pipe given, an ordinary file needed")
    refused(called(*(word.format("/dev/zero") for word in words)), "a device or a socket given")


def test_a_pipe_in_a_folder_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    refused(ran("predict", tmp_path), "a pipe given, an ordinary file needed")


def test_too_many_layers_to_vary_are_refused_before_any_is_computed():
    refused(called("predict", "bloom-7b1", "--mixing", "0.1", "--vary", "depth=1:1000000000"), "1 to 100,000")


# ── what is written ──


def test_what_is_read_is_not_written_over(tmp_path):
    spec = tmp_path / "a.toml"
    spec.write_text("depth = 2\n")
    (tmp_path / "link.toml").symlink_to(spec)
    refused(called("predict", spec, "--out", spec), "which is read too")
    refused(called("predict", spec, "--out", tmp_path / "link.toml"), "which is read too")
    refused(called("predict", spec, "--plot", tmp_path / "b.png", "--out", tmp_path / "b.png"), "written too")
    assert spec.read_text() == "depth = 2\n"


@pytest.mark.parametrize(
    "words", [("predict", "a" * 300), ("predict", "bloom-7b1", "--out", "b" * 300 + ".json")]
)
def test_a_name_longer_than_names_may_be(words, tmp_path):
    refused(ran(*words, cwd=tmp_path), "File name too long")
    assert not [*tmp_path.iterdir()]


# ── streams ──


def test_a_full_or_closed_output_is_said():
    refused(ran("predict", "bloom-7b1", shell="> /dev/full"), "standard output: No space left on device")
    refused(ran("predict", "bloom-7b1", shell=">&-"), "standard output: it is closed")
    assert ran("predict", "bloom-7b1", shell="> /dev/null 2>&-").returncode == 0


def test_a_reader_that_leaves_is_no_fault():
    done = ran("predict", "bloom-7b1", "--tokens", "20000", "--json", shell="| head -c 50")
    assert (done.returncode, len(done.stdout)) == (0, 50)


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
def test_a_terminal_of_few_letters_gets_the_others_marked(environment):
    done = ran("predict", "bloom-7b1", **environment)
    assert done.returncode == 0, done.stderr
    assert "verdict: U" in done.stdout


# ── names ──


def test_a_name_forges_no_line_and_sends_no_sequence():
    refused(called("predict", "evil\nposbias: forged\x1b[31m"), r"evil\nposbias: forged\x1b[31m")


@given(st.text())
def test_one_line_holds_nothing_that_a_terminal_obeys(text):
    line = one_line(text)
    assert len(line) <= MOST
    assert line.splitlines() in ([], [line])
    assert line.isprintable() or not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in line)
    if text.isprintable() and len(text) <= MOST:
        assert line == text
    line.encode()


# ── surroundings ──


def test_variables_that_libraries_stumble_over(tmp_path):
    refused(ran("predict", "bloom-7b1", NUMBA_NUM_THREADS="0"), "NUMBA_NUM_THREADS: '0' given")
    done = ran("predict", "bloom-7b1", "--plot", tmp_path / "x.png", MPLBACKEND="nonsense")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.png").stat().st_size > 1000


@pytest.mark.parametrize("moment", [0.1, 0.2, 0.3, 0.5])
def test_ctrl_c_while_it_is_imported(moment):
    """However early: 130 and a line of ours; before the first of our lines is read, Python's own words."""
    words = [sys.executable, "-m", "posbias", "predict", "bloom-7b1", "--tokens", "1000000"]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(moment)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=SECONDS)
    if running.returncode == 130:
        assert told.splitlines()[-1].startswith("posbias: interrupted"), told
    else:
        early = running.returncode == -signal.SIGINT or "KeyboardInterrupt" in told
        assert early and "posbias/cli" not in told, (running.returncode, told)  # noqa: PT018


STUDY = """
question = "Does recency grow with depth?"
seeds = [0]
base = {kind = "simulate", samples = 20, model = {tokens = 5, dimension = 8}}
sweep = {"model.depth" = [1, 2]}
"""


def test_a_study_goes_on_when_there_is_space_again(tmp_path):
    """Files of more than a kilobyte cannot be written, as on a full disk: the manifest can, the cells cannot."""
    (tmp_path / "study.toml").write_text(STUDY)
    words = ("study", "run", "study.toml", "-q", "--out")
    # Python itself does not notice that it could write a part of a .pyc alone
    limited = {"shell": "", "before": "ulimit -f 1;", "PYTHONDONTWRITEBYTECODE": "1"}
    # first without a limit: machine code is kept on disk too
    assert ran(*words, "never", cwd=tmp_path).returncode == 0
    refused(ran(*words, "full", cwd=tmp_path, **limited), "cannot write", "File too large")
    assert not [*tmp_path.glob("full/cells/*.json")]
    assert not [*tmp_path.glob("full/**/.*~*")]
    assert ran(*words, "full", cwd=tmp_path).returncode == 0
    full, never = (sorted(tmp_path.glob(f"{folder}/cells/*.json")) for folder in ("full", "never"))
    assert [path.name for path in full] == [path.name for path in never]
    for one, other in zip(full, never, strict=True):
        assert json.loads(one.read_text())["content"] == json.loads(other.read_text())["content"]


def test_a_clock_set_back_changes_nothing(tmp_path):
    """Results that are dated in the future are found, and made no second time."""
    (tmp_path / "study.toml").write_text(STUDY)
    first = ran("study", "run", "study.toml", "--out", "s", "--json", cwd=tmp_path)
    later = time.time() + 10 * 365 * 86_400
    for path in (tmp_path / "s").rglob("*"):
        os.utime(path, (later, later))
    before = {path: path.read_bytes() for path in tmp_path.glob("s/cells/*")}
    again = ran("study", "run", "study.toml", "--out", "s", "--json", cwd=tmp_path)
    assert (first.returncode, again.returncode) == (0, 0), again.stderr
    assert {path: path.read_bytes() for path in tmp_path.glob("s/cells/*")} == before


def test_what_a_killed_writer_began_is_cleared(tmp_path):
    """Its file is named after a process that is gone; one of a living process stays."""
    (tmp_path / "study.toml").write_text(STUDY)
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    cells = tmp_path / "s" / "cells"
    cells.mkdir(parents=True)
    dead = cells / f".{os.uname().nodename}~{done.stdout.strip()}~x.json.abc.json"
    living = cells / f".{os.uname().nodename}~{os.getpid()}~x.json.abc.json"
    for path in (dead, living):
        path.write_text("{")
    assert ran("study", "run", "study.toml", "--out", "s", cwd=tmp_path).returncode == 0
    assert (dead.exists(), living.exists()) == (False, True)
