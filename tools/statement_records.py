"""Put the statements of the papers on record as a folder of results has tried them.

posbias paper claims --instances 1000 --out FOLDER
python tools/statement_records.py FOLDER
"""

import json
import sys
from pathlib import Path

from posbias.core.files import write_text
from posbias.core.store import Store
from posbias_papers.statements import STATEMENTS
from posbias_papers.statements.trials import StatementCell
from posbias_papers.theorems import RECORDS


def lines(folder: Path) -> list[str]:
    """A line of the record for each statement that FOLDER/statements has."""
    store, found = Store(folder / "statements"), []
    for cell in map(StatementCell, STATEMENTS):
        stored = store.find(cell)
        if stored is None:
            raise SystemExit(f"{cell.name}: expected a statement tried in {folder}, got none")
        line = {"fingerprint": cell.fingerprint, "statement": cell.name, "instances": stored.header.amount}
        found.append(json.dumps(line | {"content": cell.to_content(stored.result)}) + "\n")
    return found


if __name__ == "__main__":
    write_text(RECORDS, "".join(lines(Path(sys.argv[1]))))
