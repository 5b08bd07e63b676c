"""posbias: predict, measure and compare position bias in transformers.

    import posbias

    architecture = posbias.load_architecture("config.json")
    profile = posbias.predict(architecture, tokens=4096)
    print(profile.summary.verdict, profile.summary.trough)

Names are loaded when first used; importing the package does no work, but that torch, if it is loaded later, has
waiting threads sleep (`posbias.core.machine`). `posbias.measure` needs torch and transformers.
"""

import lazy_loader

from posbias.core.machine import sleep_while_waiting

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
sleep_while_waiting()
