"""Remedy: what helps against a position bias, before and after."""

import json
import re
from pathlib import Path

from command import called
from http_servers import prompt_of, serving


def first_read(number, body):
    """A server that knows what stands first, and all that stands there twice."""
    prompt = prompt_of(body)
    rows = re.findall(r"(\w+ ?\w*) owns the ([\w ]+)\.\n", prompt)
    asked = re.search(r"What does (.+) own\?", prompt)[1]
    known = rows[:1] if len({*rows}) == len(rows) else rows
    return next((thing for name, thing in known if name == asked), "none of them")


def test_a_server_before_and_after(answered):
    """It reads the first fact alone, but whatever stands twice."""
    with serving(first_read) as server:
        words = ("remedy", "toy", "--endpoint", server.url, "--pairs", 4, "--positions", 3, "--prompts", 12)
        words += ("--remedy", "twice", "--remedy", "divide", "--out", "r")
        cost = answered(*words, "--dry-run")
        assert (server.asked, Path("r").exists()) == ([], False)
        found = answered(*words)
        count = len(server.asked)
        assert answered(*words)["remedies"][1]["change"] == found["remedies"][1]["change"]
        assert len(server.asked) == count
        assert "changes no gap" not in called(*words).stdout  # it does
    plain, twice, divide = found["remedies"]
    assert [place["value"] for place in plain["curve"]] == [1, 0, 0]
    assert [place["value"] for place in twice["curve"]] == [1, 1, 1]
    assert twice["change"]["first - middle"]["value"] == -1
    assert divide["controls"]["gold alone"]["value"] == 1
    assert cost["requests"] == {one["name"]: one["requests"] for one in found["remedies"]}
    assert twice["source"].startswith("2512.14982")


def test_documents_and_items_of_ones_own(answered):
    sets = [
        {
            "question": f"Who is {n}?",
            "documents": [f"{k} is m{k}." for k in range(n, n + 4)],
            "gold": 0,
            "answers": [f"m{n}"],
        }
        for n in range(8)
    ]
    Path("own.jsonl").write_text("".join(json.dumps(one) + "\n" for one in sets))
    items = [{"question": f"q{n}?", "options": [f"good {n}", f"poor {n}"], "right": 0} for n in range(8)]
    Path("items.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items))
    with serving(lambda number, body: "A") as server:
        words = ("remedy", "toy", "--endpoint", server.url, "--out")
        (_, vote) = answered(*words, "d", "--trials", "own.jsonl", "--remedy", "vote")["remedies"]
        assert vote["requests"] == 5
        found = answered(*words, "i", "--items", "items.jsonl")["remedies"]
    assert [one["name"] for one in found] == ["plain", "twice", "task-last", "orders-averaged"]


def test_a_model_that_is_opened_gives_margins(answered):
    words = ("remedy", "tiny-alibi", "--pairs", 4, "--positions", 3, "--prompts", 3)
    found = answered(*words, "--remedy", "best-last", "-o", "t")
    assert found["measures"] == "margin"
    assert len({place["value"] for place in found["remedies"][1]["curve"]}) == 1
