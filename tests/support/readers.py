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


def keeping(rules: str, request: str) -> str:
    """An answer that keeps the one asked rule in `rules`, and where there is none keeps none of them."""
    thing = re.findall(r'what "([\w ]+)" means', request)[0]
    plain = f"A {thing} is what people know as {thing}."
    asked = re.findall(r"Your answer must [^\n]*\.", rules)
    word = re.findall(r'word "([\w ]+)"', asked[0])[0] if asked and 'word "' in asked[0] else ""
    kept = {
        "must not contain": "It is what people know.", "must not begin": "It is known.", "not stand on": "It\nis",
        "capital": f"a {thing} is known.", "full stop": f"A {thing} is known", "must contain": f"{plain} {word}",
        "begin with the word": f"{word}: {plain}", "three lines": "one\n\ntwo\nthree", "Cyrillic": "Это вещь.",
        "JSON": '```json\n{"a": 1}\n```', "exclamation": "Known!",
    }  # fmt: skip
    return next((text for words, text in kept.items() if asked and words in asked[0]), plain)


def obeys(prompt: str) -> str:
    """The answer of one that keeps every rule, wherever it stands."""
    rules, _, request = prompt.rpartition("\nUser:")
    return keeping(rules, request)


def obeys_near_the_end(prompt: str) -> str:
    """… the rule that stands in the last quarter of the rules alone."""
    rules, _, request = prompt.rpartition("\nUser:")
    return keeping(rules[len(rules) * 3 // 4 :], request)


def forgets_prohibitions(prompt: str) -> str:
    """… what must be, wherever it stands, and what must not be only near the end."""
    return (obeys_near_the_end if "Your answer must not" in prompt else obeys)(prompt)
