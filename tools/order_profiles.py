"""Make a profile to order by from a retrieval: `posbias retrieve MODEL --pairs 10 --positions 10 --prompts 200`.

python tools/order_profiles.py retrieval.nc …     writes src/posbias/ordering/profiles/MODEL.json
"""

import json
import sys

from posbias.ordering import FOLDER, QUANTITY
from posbias.profiles.measurements import load_retrieval

for path in sys.argv[1:]:
    found = load_retrieval(path)
    about = {key: found.attrs[key] for key in ("model", "checksum")}
    about |= {key: json.loads(found.attrs[key]) for key in ("job", "versions")}
    about["tokens"] = float(found["tokens"].mean())
    about["samples"] = found[QUANTITY].values.astype(int).tolist()
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{about['model']}.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
