"""Remedies against position bias, before and after: the same trials plain and treated.

    session = Session((retrieval_job("keys", wording="chat"),))
    found = posbias.remedy(lambda prompt: my_model(prompt), session)
    print(found["twice"].effect, found["twice"].change)

A remedy is a frozen value: its name (`kind`), its `source`, what it does to the parts of a prompt, to decisions or
to who is asked, and so what it costs. Its parameters are part of what kept answers are found by.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
