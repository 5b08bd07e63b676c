"""Random numbers as functions of (seed, name, number, row): nothing is remembered, anything can be drawn again.

    draws = Draws((0, 1), "train/noise")
    draws.normals(7, rows=128, each=576)        # member, sequence, component: the noise of batch 7

Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") encrypts a counter of four
words, (block within the row, row, low and high word of the number), under a key of two, made of seed and name. So
a number does not depend on what else is drawn, how much, in what order, or by whom: data are equal to the bit on
every device, for every grouping of members, every number of threads and after every interruption.

A normal number is one of 65,536 equally likely quantiles of the normal distribution, scaled to variance 1 and
looked up: no logarithm or sine that processors round differently. Its distribution function is off by less than
1e-5, its largest size is 4.3.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import ndtri
from torch import Tensor

from posbias.core.machine import compiled, sequence

ROUNDS, WORD = 10, 0xFFFFFFFF
_MULTIPLY, _KEY_STEP = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
LEVELS = 2**16
"""How many values a normal number may have."""
Words = Int[Tensor, "member row each"]
Reals = Float[Tensor, "member row each"]


class Draws:
    """What is drawn for members with `seeds` under a name and a place, on `device`.

    `number` is an integer from 0 or, on the device, a tensor that holds one: a recorded graph can count it on.
    `rows` are those from `start` on, `each` the numbers in a row; a row depends on neither.
    """

    def __init__(self, seeds: Sequence[int], name: str, *place: int, device: str = "cpu"):
        keys = [sequence(seed, name, *place).generate_state(2, "uint32") for seed in seeds]
        self._keys = np.array(keys, dtype=np.uint64)
        self._device = torch.device(device)
        self._held = torch.as_tensor(self._keys.astype(np.int64)).to(device)

    def words(self, number: int | Tensor, rows: int, each: int, start: int = 0) -> Words:
        """Integers from 0 to 2³² − 1, all equally likely."""
        if self._device.type != "cpu":
            return philox(self._held, number, start, rows, each)
        made = np.empty((len(self._keys), rows, each), dtype=np.int64)
        _fill_words(self._keys, int(number) & WORD, int(number) >> 32, start, made)
        return torch.from_numpy(made)

    def normals(self, number: int | Tensor, rows: int, each: int, start: int = 0) -> Reals:
        """Normal numbers of variance 1, float32; two of a word, the lower half first."""
        if self._device.type != "cpu":
            return normals_of(self.words(number, rows, (each + 1) // 2, start), each)
        made = np.empty((len(self._keys), rows, each), dtype=np.float32)
        _fill_normals(self._keys, int(number) & WORD, int(number) >> 32, start, quantiles().numpy(), made)
        return torch.from_numpy(made)

    def below(self, limit: int, number: int | Tensor, rows: int, each: int, start: int = 0) -> Words:
        """Integers from 0 to `limit` − 1; their chances differ by at most 2⁻³²."""
        return below(limit, self.words(number, rows, each, start))

    def uniform(self, number: int | Tensor, rows: int, each: int, start: int = 0) -> Reals:
        """Multiples of 2⁻²³ from −1 up to below 1, float32, all equally likely."""
        return (self.words(number, rows, each, start) >> 8).float() * 2.0**-23 - 1.0


def below(limit: int, words: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """An integer from 0 to `limit` − 1 of each word."""
    return (words * limit) >> 32


def normals_of(words: Int[Tensor, "member row pair"], each: int) -> Reals:
    """The normal numbers of words, `each` in a row."""
    halves = torch.stack([words & (LEVELS - 1), words >> 16], dim=-1).flatten(2)[..., :each]
    return quantiles(str(words.device))[halves]


@cache
def quantiles(device: str = "cpu") -> Float[Tensor, "level"]:
    """The values of normal numbers, in order: mean 0, variance 1."""
    values = ndtri((np.arange(LEVELS) + 0.5) / LEVELS)
    return torch.as_tensor((values / values.std()).astype(np.float32)).to(device)


def philox(keys: Int[Tensor, "member 2"], number: int | Tensor, start: int, rows: int, each: int) -> Words:
    """The words in tensor operations: what runs on a GPU, and the plain reference of the compiled function."""
    device = keys.device
    number = torch.as_tensor(number, device=device)
    counter = [
        torch.arange(-(-each // 4), device=device)[None, None],
        torch.arange(start, start + rows, device=device)[None, :, None],
        (number & WORD)[None, None, None],
        (number >> 32)[None, None, None],
    ]
    key = [keys[:, None, None, part] for part in (0, 1)]
    for _ in range(ROUNDS):
        low, high = counter[0] * _MULTIPLY[0], counter[2] * _MULTIPLY[1]
        # products wrap to signed 64 bits: the upper word is right, its sign is not
        counter = [
            ((high >> 32) & WORD) ^ counter[1] ^ key[0],
            high & WORD,
            ((low >> 32) & WORD) ^ counter[3] ^ key[1],
            low & WORD,
        ]
        key = [(one + step) & WORD for one, step in zip(key, _KEY_STEP, strict=True)]
    return torch.stack(torch.broadcast_tensors(*counter), dim=-1).flatten(2)[..., :each]


@compiled(inlined=True)
def _encrypt(key, other_key, block, row, low, high):
    """Ten rounds of Philox on one counter."""
    word, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b, c, d = np.uint64(block), np.uint64(row), np.uint64(low), np.uint64(high)
    k, m = key, other_key
    for _ in range(10):
        one, other = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (other >> shift) ^ b ^ k, other & word, (one >> shift) ^ d ^ m, one & word
        k, m = (k + np.uint64(0x9E3779B9)) & word, (m + np.uint64(0xBB67AE85)) & word
    return a, b, c, d


@compiled()
def _fill_words(keys, low, high, start, made):
    """Write the words of every member and row."""
    members, rows, each = made.shape
    for member in range(members):
        for row in range(rows):
            for block in range((each + 3) // 4):
                words = _encrypt(keys[member, 0], keys[member, 1], block, start + row, low, high)
                for place in range(min(4, each - 4 * block)):
                    made[member, row, 4 * block + place] = np.int64(words[place])


@compiled()
def _fill_normals(keys, low, high, start, table, made):
    """Write the normal numbers of every member and row."""
    members, rows, each = made.shape
    half, shift = np.uint64(0xFFFF), np.uint64(16)
    for member in range(members):
        for row in range(rows):
            line = made[member, row]
            for block in range((each + 7) // 8):
                words = _encrypt(keys[member, 0], keys[member, 1], block, start + row, low, high)
                first = 8 * block
                if first + 8 <= each:
                    for pair, word in enumerate(words):
                        line[first + 2 * pair] = table[word & half]
                        line[first + 2 * pair + 1] = table[word >> shift]
                else:
                    for place in range(each - first):
                        word = words[place // 2]
                        line[first + place] = table[word >> shift if place % 2 else word & half]
