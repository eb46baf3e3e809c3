"""What is shown: every section, picture and hand-written table of the documents, with its origin, or that it has none.

`eval/configs/report.yaml` names the origins of pictures, the figures that are written by hand, and the negative results that
documents tell. A figure by hand is found by a phrase that one part of its document has, and no other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from beamer.errors import InputError
from beamer.yaml_files import read_yaml
from eval.config_section import ConfigSection
from eval.report.origins import IN_THE_CODE, NOT_RECORDED, DocsSection, Origin, recorded_machine
from eval.report.parts import PICTURE, ROOT, SECTION_KIND, DocumentPart, everything

CONFIG = Path(__file__).parent.parent / "configs" / "report.yaml"
PUBLISHED = "report"  # the command of sections that are no figures


class Settings(ConfigSection):
    """A part of the config; keys that it does not know are errors."""


class Passage(Settings):
    """A part of a document. phrase: that it has, and no other part of the document."""

    document: str
    phrase: str

    def find(self, parts: Sequence[DocumentPart]) -> DocumentPart:
        """Return the part. Raises `InputError` unless it is one."""
        found = [one for one in parts if one.document == self.document and self.phrase in one.text]
        if len(found) != 1:
            raise InputError(self.document, self.phrase, f"a phrase of one part of the document, not of {len(found)}")
        return found[0]


class ByHand(Passage):
    """A figure that no command writes into the document: its title, and what it was made with if the document says so."""

    title: str
    command: str
    seeds: str = NOT_RECORDED
    config: str = IN_THE_CODE
    results: str = ""
    machine: str = ""

    @property
    def origin(self) -> Origin:
        """Where it is from: on the machine that the document names, or else its results."""
        machine = self.machine or (recorded_machine(ROOT / self.results) if self.results else NOT_RECORDED)
        return Origin(self.command, self.seeds, self.config, self.results, machine)


class PictureOrigin(Settings):
    """Where pictures are from: like a section, or as is said here. name: of the files, `*` for any part of it."""

    name: str
    like: str = ""
    command: str = ""
    config: str = IN_THE_CODE
    machine: str = NOT_RECORDED


class ReportConfig(Settings):
    """What is not found in the documents themselves."""

    pictures: tuple[PictureOrigin, ...]
    by_hand: tuple[ByHand, ...]
    negative: tuple[Passage, ...]


@dataclass(frozen=True)
class Exhibit:
    """Something that is shown.

    part: of a document. name: a section's or file's, else its title. text: in Markdown; "" if there are no figures or no file.
    origin: if it is known.
    """

    part: DocumentPart
    name: str
    text: str
    origin: Origin | None

    @property
    def missing(self) -> str:
        """What it lacks: figures, an origin or a committed source; "" if nothing."""
        if not self.text:
            return "no committed figures" if self.part.kind == SECTION_KIND else "no such file"
        if self.origin is None:
            return "no known origin"
        return "" if self.origin.results else "no committed source"


def read_config(path: Path = CONFIG) -> ReportConfig:
    """Return a config file, checked. Raises `pydantic.ValidationError`."""
    return ReportConfig.model_validate(read_yaml(path, "--config"))


def exhibits(
    config: ReportConfig, sections: Mapping[str, DocsSection], root: Path, parts: Sequence[DocumentPart] | None = None
) -> Iterator[Exhibit]:
    """Yield everything that is shown of the documents' parts, in their order. root: of the pictures' paths.

    sections: by name, those that there are figures of. Raises `InputError` for a figure by hand that is not in its document.
    """
    parts = list(everything()) if parts is None else parts
    by_hand = {id(one.find(parts)): one for one in config.by_hand}
    for part in parts:
        if part.kind == SECTION_KIND:
            if part.text.partition(" ")[0] != PUBLISHED:
                known = sections.get(part.text)
                yield Exhibit(part, f"eval {part.text}", known.text if known else "", known.origin if known else None)
        elif part.kind == PICTURE:
            there = (root / part.text).is_file()
            text = f"![{part.title}]({part.text})" if there else ""
            yield Exhibit(part, Path(part.text).name, text, _of_picture(config, part, sections))
        elif one := by_hand.get(id(part)):
            yield Exhibit(part, f"{one.title} (written by hand)", part.text, one.origin)


def _of_picture(config: ReportConfig, part: DocumentPart, sections: Mapping[str, DocsSection]) -> Origin | None:
    for one in config.pictures:
        if fnmatch(Path(part.text).name, one.name):
            known = sections.get(one.like)
            if not one.like:
                return Origin(one.command, config=one.config, machine=one.machine)
            return known.origin if known else None
    return None
