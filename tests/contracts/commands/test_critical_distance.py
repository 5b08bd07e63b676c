"""`posbias predict --critical-distance` against numbers of walks, envelopes and kernels counted one by one."""

import json
import math

import numpy as np
import pytest

from posbias.cli import main
from posbias.core.errors import InvalidValueError

DECAY = (
    'depth = 6\nmixing = {kind = "attention_only"}\n[[layers]]\npositional = {kind = "decay", rate = 0.4}\n'
)
PAIR = (
    'depth = 5\nmixing = {kind = "attention_only"}\n[[layers]]\n'
    'positional = {kind = "rope", amplitudes = [20.0], frequencies = [0.05]}\n'
)
TOKENS = 90


def answer(capsys, tmp_path, text, *options):
    path = tmp_path / "spec.toml"
    path.write_text(text)
    main(["predict", str(path), "--critical-distance", "--tokens", str(TOKENS), *options, "--json"])
    return json.loads(capsys.readouterr().out)


def highest(values):
    return max(range(len(values)), key=values.__getitem__)


def peak_of_rollout(logits, depth):
    """Distance at which the last token's rollout is highest, its first token left out; by dense kernels."""
    kernel = np.array(
        [[math.exp(logits[i - j]) if j <= i else 0.0 for j in range(TOKENS)] for i in range(TOKENS)]
    )
    row = np.linalg.matrix_power(kernel / kernel.sum(axis=1, keepdims=True), depth)[-1]
    return highest(row[:0:-1].tolist())


def test_decay_masks_have_the_peak_of_walks_times_envelope(capsys, tmp_path):
    found = answer(capsys, tmp_path, DECAY, "--vary", "decay=0.3,0.7")
    assert found["schema"] == "predict-critical/1"
    for curve, rate in zip(found["curves"], (0.3, 0.7), strict=True):
        assert curve["depth"] == [1, 2, 3, 4, 5, 6]
        for place, depth in enumerate(curve["depth"]):
            assert curve["predicted"][place] == pytest.approx((depth - 1) / (math.exp(rate) - 1))
            walks = [math.comb(depth - 1 + x, x) * math.exp(-rate * x) for x in range(TOKENS)]
            assert curve["modal"][place] == highest(walks)
            logits = [-rate * x for x in range(TOKENS)]
            assert curve["rollout"][place] == peak_of_rollout(logits, depth)


def test_a_rotary_pair_has_the_root_and_the_peaks(capsys, tmp_path):
    found = answer(capsys, tmp_path, PAIR, "--vary", "rope_angle=0.03,0.08")
    for curve, angle in zip(found["curves"], (0.03, 0.08), strict=True):
        for place, depth in enumerate(curve["depth"]):
            x = curve["predicted"][place]
            strength = 10.0 * angle**2  # a/2 for c
            if depth > 1:
                assert math.log(1 + (depth - 1) / x) == pytest.approx(2 * strength * x)
            walks = [math.comb(depth - 1 + d, d) * math.exp(-strength * d * d) for d in range(TOKENS)]
            assert curve["modal"][place] == highest(walks)
            logits = [20.0 * math.cos(angle * d) for d in range(TOKENS)]
            assert curve["rollout"][place] == peak_of_rollout(logits, depth)


def test_it_is_drawn_and_told_in_a_table(capsys, tmp_path):
    (tmp_path / "spec.toml").write_text(DECAY)
    picture = tmp_path / "critical.png"
    spec = str(tmp_path / "spec.toml")
    main(["predict", spec, "--critical-distance", "--tokens", "40", "--plot", str(picture)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["encoding", "layers", "x*"]
    assert len([line for line in lines if line.startswith("decay, m = 0.4")]) == 6
    assert picture.stat().st_size > 5_000


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (DECAY.replace("attention_only", "abnar_zuidema"), [], "--mixing attention_only"),
        (DECAY + 'mask = {kind = "sliding_window", width = 4}\n', [], "equal causal layers"),
        (DECAY, ["--vary", "mixing=0:1"], "decay or rope_angle"),
        (DECAY, ["--vary", "decay=1", "--vary", "rope_angle=1"], "vary"),
        (DECAY, ["--depth-trajectory"], "depth_trajectory"),
        (DECAY, ["--tokens", "8,16"], "critical_distance"),
        (
            DECAY.replace('{kind = "decay", rate = 0.4}', '{kind = "alibi"}'),
            [],
            "DecayBias or RoPE with one pair and phase 0 needed",
        ),
    ],
)
def test_what_the_theorems_do_not_speak_of_is_refused(tmp_path, text, options, words, capsys):
    (tmp_path / "spec.toml").write_text(text)
    with pytest.raises((SystemExit, InvalidValueError)) as raised:
        main(["predict", str(tmp_path / "spec.toml"), "--critical-distance", *options])
    assert words in capsys.readouterr().err + str(raised.value)
