"""The pages of an adapter's findings: NAME/FINDINGS.md has what counts, NAME/EDGES.md what does not (README.md, "What is a
finding"). Each is classes (##) of sections (###)."""
import pathlib
import re
from typing import NamedTuple

ADAPTERS = pathlib.Path(__file__).resolve().parent
# {page: its classes, in their order}
CLASSES = {"FINDINGS.md": ("Wrong answers, end to end", "Wrong rows, errors and losses in use"),
           "EDGES.md": ("Edges of the interface", "Differences that are not claimed as faults")}
GENERATES, IN_USE = CLASSES["FINDINGS.md"]
EDGE, DIFFERENCE = CLASSES["EDGES.md"]


class Section(NamedTuple):
    page: str
    kind: str  # its class
    title: str
    text: str  # without the title

    @property
    def programs(self):
        """{name under findings/: what the section says that it prints}"""
        return dict(re.findall(r"^`findings/((?:gpu/)?\w+)\.py` prints\n```\n(.*?)```$", self.text, flags=re.M | re.S))

    def trace(self, word):
        """The trace or history that begins with `word` and stands alone in a block, or None."""
        found = re.search(rf"^```\n({word} .*)\n```", self.text, flags=re.M)
        return found and found[1]


def sections(folder):
    """Of both pages, in their order; one before any class has the class ""."""
    found = []
    for page in CLASSES:
        path = ADAPTERS / folder / page
        kind = ""
        for part in re.split(r"^(?=##+ )", path.read_text() if path.is_file() else "", flags=re.M)[1:]:
            title, _, text = part.partition("\n")
            if title.startswith("### "):
                found.append(Section(page, kind, title.removeprefix("### "), text))
            else:
                kind = title.removeprefix("## ")
    return found


def names():
    """Folders that have a page."""
    return sorted(path.parent.name for path in ADAPTERS.glob("*/FINDINGS.md"))
