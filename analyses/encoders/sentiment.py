"""Sentences labelled 1 (praise) or 0 (blame): SST-2 from a folder or the hub, or a generated corpus.

A folder is read in either layout it circulates in:

    train.tsv, dev.tsv                      GLUE: a header, `sentence<TAB>label`, no quoting
    stsa.binary.train, stsa.binary.dev      whole sentences: `label sentence`

The generated corpus is small and easy; it is there so that everything runs with no data at hand,
and its name says what it is wherever its numbers are shown.

>>> corpus = generate_corpus()
>>> corpus.is_generated, len(corpus.train.texts), len(corpus.dev.texts)
(True, 1600, 400)
"""

import random
from dataclasses import dataclass
from pathlib import Path

from ffnprobe.errors import DataRefused

HUB = "stanfordnlp/sst2"
SECONDS = 5.0
_LAYOUTS = (("train.tsv", "dev.tsv"), ("stsa.binary.train", "stsa.binary.dev"))


@dataclass(frozen=True)
class Split:
    """Sentences and their labels, in file order."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]

    def first(self, count: int) -> "Split":
        """Keep the first sentences only."""
        return Split(self.texts[:count], self.labels[:count])


@dataclass(frozen=True)
class Corpus:
    """What an encoder is trained on and what it is measured on; every figure shows `name`."""

    name: str
    train: Split
    dev: Split
    is_generated: bool = False

    def first(self, train: int, dev: int) -> "Corpus":
        """Keep the first sentences of both splits, and say so in the name."""
        name = f"{self.name}, first {train:,} sentences"
        return Corpus(name, self.train.first(train), self.dev.first(dev), self.is_generated)


def find_corpus(where: str | None) -> Corpus:
    """Read a folder, or `hub`, or `generated`; with nothing said, the hub's or else the generated."""
    if where == "generated":
        return generate_corpus()
    if where == "hub":
        return read_hub()
    if where is not None:
        return read_folder(Path(where))
    try:
        return read_hub()
    except DataRefused:
        return generate_corpus()


def read_folder(folder: Path) -> Corpus:
    """Read a folder of SST-2 in the GLUE layout or in the sentence layout."""
    for files in _LAYOUTS:
        if not all((folder / name).is_file() for name in files):
            continue
        is_glue = files[0].endswith(".tsv")
        read = _read_glue if is_glue else _read_sentences
        name = "SST-2 (GLUE phrases)" if is_glue else "SST-2 (whole sentences)"
        return Corpus(name, read(folder / files[0]), read(folder / files[1]))
    if not folder.is_dir():
        raise DataRefused(f"there is no folder {folder}.", remedy="a folder with SST-2")
    wanted = " or ".join(" and ".join(files) for files in _LAYOUTS)
    present = {name for files in _LAYOUTS for name in files if (folder / name).is_file()}
    lacking = [
        name for files in _LAYOUTS if present & set(files) for name in files if name not in present
    ]
    raise DataRefused(f"{folder} lacks {' and '.join(lacking) or wanted}.", remedy=wanted)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataRefused(f"{path} cannot be read: {error}.") from None
    # Sentences hold odd separators that splitlines() would break at.
    return text.removesuffix("\n").split("\n")


def _read_glue(path: Path) -> Split:
    """Read `sentence<TAB>label` below a header; a quotation mark is a letter like any other."""
    rows = [line.rpartition("\t") for line in _lines(path)[1:]]
    return _split(path, [(text, label) for text, _, label in rows], first_line=2)


def _read_sentences(path: Path) -> Split:
    rows = [line.partition(" ") for line in _lines(path)]
    return _split(path, [(text, label) for label, _, text in rows], first_line=1)


def _split(path: Path, rows: list[tuple[str, str]], *, first_line: int) -> Split:
    for number, (text, label) in enumerate(rows, first_line):
        if label.strip() not in ("0", "1"):
            raise DataRefused(f'{path}, line {number}: the label is "{label.strip()}", not 0 or 1.')
        if not text.strip():
            raise DataRefused(f"{path}, line {number}: there is no sentence.")
    if not rows:
        raise DataRefused(f"{path} holds no sentences.")
    return Split(tuple(text.strip() for text, _ in rows), tuple(int(label) for _, label in rows))


def read_hub() -> Corpus:
    """Fetch SST-2 through `datasets`, if the hub answers within a few seconds."""
    from huggingface_hub import HfApi

    try:
        HfApi().dataset_info(HUB, timeout=SECONDS)
        from datasets import load_dataset

        loaded = load_dataset(HUB)
    except Exception as error:  # the hub's libraries raise their own, httpx's and requests' errors
        cause = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise DataRefused(
            f"the hub did not deliver {HUB} ({cause}).", remedy="a local folder, or generated"
        ) from None
    train, dev = (
        Split(
            tuple(text.strip() for text in loaded[name]["sentence"]), tuple(loaded[name]["label"])
        )
        for name in ("train", "validation")
    )
    return Corpus("SST-2 (GLUE phrases)", train, dev)


_THINGS = ("film", "plot", "cast", "script", "ending", "music", "story", "dialogue", "pacing",
           "camera work", "lead actor", "first half", "comedy", "drama")  # fmt: skip
_PRAISE = ("wonderful", "moving", "clever", "bright", "tender", "gripping", "witty", "superb",
           "fresh", "warm", "graceful", "funny", "brilliant", "honest")  # fmt: skip
_BLAME = ("dull", "clumsy", "tedious", "hollow", "awful", "stale", "lifeless", "messy", "shallow",
          "boring", "grim", "lazy", "painful", "flat")  # fmt: skip
_DEGREES = ("", "very ", "rather ", "truly ", "often ", "mostly ")
# {same} agrees with the label, {other} is of the opposite kind.
_FRAMES = (
    "the {thing} is {degree}{same} .",
    "a {degree}{same} {thing} from start to finish",
    "the {thing} is never {other} , always {same} .",
    "it looks {other} at first , but the {thing} turns out {degree}{same} .",
    "not {other} at all : the {thing} is {same} and the {thing2} is {same2} .",
    "even the {thing2} cannot hide how {degree}{same} the {thing} is .",
)


def generate_corpus(*, seed: int = 0, train: int = 1600, dev: int = 400) -> Corpus:
    """Write short reviews by rule: kind and unkind words, some of them denied; none occurs twice."""
    draw = random.Random(seed)
    written: dict[str, int] = {}
    while len(written) < train + dev:
        label = len(written) % 2
        same, other = (_PRAISE, _BLAME) if label else (_BLAME, _PRAISE)
        thing, thing2 = draw.sample(_THINGS, 2)
        first, second = draw.sample(same, 2)
        text = draw.choice(_FRAMES).format(
            thing=thing, thing2=thing2, degree=draw.choice(_DEGREES),
            same=first, same2=second, other=draw.choice(other),
        )  # fmt: skip
        written.setdefault(text, label)
    texts, labels = tuple(written), tuple(written.values())
    whole = Split(texts, labels)
    return Corpus(
        "a small corpus generated by ffnprobe, not SST-2",
        whole.first(train),
        Split(texts[train:], labels[train:]),
        is_generated=True,
    )
