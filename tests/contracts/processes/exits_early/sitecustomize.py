"""End as many of the interpreters that Ray starts for its clients as the file EXITS_EARLY says."""

import os
import sys
from pathlib import Path

if any("mode=specific-server" in word for word in sys.orig_argv):
    left = Path(os.environ["EXITS_EARLY"])
    number = int(left.read_text()) if left.exists() else 0
    if number:
        left.write_text(str(number - 1))
        print("too little memory for an interpreter", file=sys.stderr, flush=True)
        os._exit(1)
