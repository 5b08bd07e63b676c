"""The bibliography: which paper a method, an equation or a number comes from."""

from dataclasses import dataclass

from posbias.errors import InvalidValueError, nearest


@dataclass(frozen=True)
class Source:
    """A paper: citation key, authors, title, year and arXiv identifier (empty when it has none)."""

    key: str
    authors: str
    title: str
    year: int
    arxiv: str = ""

    @property
    def bibtex(self) -> str:
        """The entry for a LaTeX bibliography."""
        eprint = f"  eprint = {{{self.arxiv}}},\n  archivePrefix = {{arXiv}},\n" if self.arxiv else ""
        return (
            f"@misc{{{self.key},\n  author = {{{self.authors}}},\n  title = {{{self.title}}},\n"
            f"  year = {{{self.year}}},\n{eprint}}}"
        )

    @property
    def short(self) -> str:
        """Name and year with the arXiv number, for a caption or a table."""
        first, *others = self.authors.split(" and ")
        name = first.split(",")[0] + (" et al." if len(others) > 1 else "")
        if len(others) == 1:
            name += " and " + others[0].split(",")[0]
        return f"{name} {self.year}" + (f" (arXiv {self.arxiv})" if self.arxiv else "")


BIBLIOGRAPHY = {
    source.key: source
    for source in (
        Source(
            "wu2025",
            "Wu, Xinyi and Wang, Yifei and Jegelka, Stefanie and Jadbabaie, Ali",
            "On the Emergence of Position Bias in Transformers",
            2025,
            "2502.01951",
        ),
        Source(
            "herasimchyk2026",
            "Herasimchyk, Hanna and Labryga, Robin and Prusina, Tomislav and Laue, Sören",
            "A Residual-Aware Theory of Position Bias in Transformers",
            2026,
            "2602.16837",
        ),
        Source(
            "kim2026",
            "Kim, Junu and Liu, Xiao and Lin, Zhenghao and Ji, Lei and Gong, Yeyun and Choi, Edward",
            "LayerNorm Induces Recency Bias in Transformer Decoders",
            2026,
            "2509.21042",
        ),
        Source(
            "abnar2020",
            "Abnar, Samira and Zuidema, Willem",
            "Quantifying Attention Flow in Transformers",
            2020,
            "2005.00928",
        ),
        Source(
            "press2022",
            "Press, Ofir and Smith, Noah A. and Lewis, Mike",
            "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
            2022,
            "2108.12409",
        ),
        Source(
            "simonyan2014",
            "Simonyan, Karen and Vedaldi, Andrea and Zisserman, Andrew",
            "Deep Inside Convolutional Networks: Visualising Image Classification Models and Saliency Maps",
            2014,
            "1312.6034",
        ),
    )
}


def cite(key: str) -> Source:
    """Return the source with this citation key. Raises `InvalidValueError` naming the nearest key."""
    if key not in BIBLIOGRAPHY:
        raise InvalidValueError(f"key: no source {key!r}{nearest(key, BIBLIOGRAPHY)}")
    return BIBLIOGRAPHY[key]
