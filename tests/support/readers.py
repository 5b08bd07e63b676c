"""Readers of lists in JSON, as models of known bias, and profiles of known rates."""

import re

import numpy as np

from posbias.profiles.profile import Profile


def listed(prompt: str) -> list[tuple[str, str]]:
    """The owners and the things of a list, in its order."""
    return re.findall(r'"([\w ]+)": "([\w ]+)"', prompt)


def reads(prompt: str, first: int | None = None, last: int = 0) -> str:
    """The right answer of one that sees the first so many of a list and the last; its own where it sees none."""
    owner = re.findall(r'"([\w ]+)": "\s*$', prompt)[0]
    pairs = listed(prompt)
    return dict([*pairs[:first], *pairs[len(pairs) - last :]]).get(owner, "nobody knows")


def reads_both_ends(prompt: str) -> str:
    return reads(prompt, first=2, last=2)


def says_the_last(prompt: str) -> str:
    return listed(prompt)[-1][1]


def rates(curve: list[float], prompts: int = 300, seed: int = 0) -> Profile:
    """Accuracies by place, drawn prompt by prompt."""
    drawn = (np.random.default_rng(seed).uniform(size=(prompts, len(curve))) < np.array(curve)).astype(float)
    return Profile(drawn.mean(axis=0), kind="rate", measures="accuracy", samples=drawn)
