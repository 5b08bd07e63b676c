"""Let the top-level modules that ABSENT names be nowhere, in this process and in its workers."""

import os
import sys
from importlib.machinery import PathFinder

_ABSENT = frozenset(os.environ["ABSENT"].split(","))


class _Finder(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        return None if fullname.partition(".")[0] in _ABSENT else super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = _Finder
