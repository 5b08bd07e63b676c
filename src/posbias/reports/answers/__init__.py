"""Answers in JSON: a pydantic model for each command, which makes its own schema; loaded when one is made."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
