"""`posbias cite`: whom to cite."""

from posbias.cli import options as shared
from posbias.cli.output import answer_with
from posbias.errors import InvalidValueError


def cite(*given: str, json: shared.Json = False) -> None:
    """Print the BibTeX of the papers whose method a spec or a result uses, each with the reason.

    Parameters
    ----------
    given
        What to cite for: an architecture (ours, a config.json, a rollout file) or a preset; a training spec or a
        trained cell (.nc, .safetensors); a study or one of its cells; a measurement or retrieval (.nc); the JSON
        of a prediction, a simulation or posbias verify; a paper's study, such as wu2025/fig2, or its file; a key
        of the bibliography, such as wu2025workshop; results made elsewhere; or a folder of such results.
    """
    from posbias.papers.citations import as_dict, bibliography, cite_all

    if not given:
        raise InvalidValueError("given: nothing given, a spec, a result or a name such as wu2025/fig2 needed")
    citations = cite_all(given)
    answer_with("cite/1", as_dict(citations), lambda: [bibliography(citations)], json)
