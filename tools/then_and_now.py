"""Claims on trained networks as version 0.1.0 judged them and as they are judged now: wu2025/then-and-now.md."""

import json
from pathlib import Path

from posbias.estimate import Estimate
from posbias.files import write_between
from posbias.papers.collect import collect
from posbias.papers.registry import STUDIES

ROOT = Path(__file__).parents[1]
SEEN = {True: "yes", False: "no", None: "open"}


def number(value, se):
    return "–" if value is None else str(Estimate(value, se or 0.0, 3)).replace("-", "−")


old = json.loads((ROOT / "tests/golden/claims_quick.json").read_text(encoding="utf-8"))
then = {one["id"]: (one["number"] or "–", one["verdict"]) for one in old}
studies = [key for key, one in STUDIES.items() if one.paper == "wu2025" and one.cells and not one.parts]
lines = ["| claim | 0.1.0 | | now | | seen |", "|---|---|---|---|---|---|"]
for one in collect(Path("nothing is made here"), papers=studies):
    now = one.as_dict()
    if now["number"] is not None or now["seen"] is not None:
        claim = f"`{one.id.removeprefix('wu2025/')}` {now['claim']}"
        later = (number(now["number"], now["se"]), now["verdict"], SEEN[now["seen"]])
        lines.append(f"| {' | '.join((claim, *then.get(one.id, ('–', 'new')), *later))} |")
page = ROOT / "docs/gallery/wu2025/then-and-now.md"
write_between(page, "<!-- claims -->", "<!-- end of claims -->", "\n".join(lines))
