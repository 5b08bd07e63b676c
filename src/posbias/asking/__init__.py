"""What can be asked: who writes answers or scores endings; requests with their places, kept answers, costs.

    from posbias.asking import Endpoint

    server = Endpoint("http://localhost:8000/v1", "my-model")
    print(server.write("The capital of France is"))

`LocalModel` opens a model here and alone needs torch.
"""

from posbias.core.packages import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, "asking a model here", extra="measure")
