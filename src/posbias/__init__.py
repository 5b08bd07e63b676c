"""posbias: predict, measure and compare position bias in transformers.

    import posbias

    architecture = posbias.load_architecture("config.json")
    profile = posbias.predict(architecture, tokens=4096)
    print(profile.summary.verdict, profile.summary.trough)

Names are loaded when first used; importing the package does no work, but that torch, if it is loaded later, has
waiting threads sleep (`posbias.threads`). `posbias.measure` needs torch and transformers.
"""

import lazy_loader

from posbias import deprecated
from posbias.threads import sleep_while_waiting

__version__ = "0.2.0"

_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = deprecated.or_moved(__name__, _find)
deprecated.install(globals())
sleep_while_waiting()
