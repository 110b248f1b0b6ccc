"""Write labels by fixed rules: at most eight words, what opens a neuron → what it says.

Forms of one word are one family: case, the space in front and an ending -s aside.

>>> fold_words(["␣basketball", "Basketball", "␣basketballs", "␣golf"])
['basketball', 'golf']
"""

from collections.abc import Iterable, Sequence

from ffnprobe.corpora.position_ranges import first_of
from ffnprobe.labels.classes import BEFORE, SPACE
from ffnprobe.labels.keys import CLASSES, KINDS, Keys

MOST_WORDS = 8
# Words of each part, so that a label has at most eight, the arrow among them.
_TOKENS, _SAYS = 3, 2


def fold_words(tokens: Iterable[str]) -> list[str]:
    """Fold shown tokens into word families, each named by its first member."""
    families: dict[str, str] = {}
    for token in tokens:
        bare = token.strip(SPACE) or token
        folded = bare.casefold()
        root = folded[:-1] if len(folded) > 3 and folded.endswith("s") else folded
        families.setdefault(root, bare)
    return list(families.values())


def describe_rule(
    kind: int, keys: Sequence[int], known: Keys, shown: Sequence[str], length: int
) -> str:
    """Write what opens a neuron, in at most five words."""
    name = KINDS[kind]
    if name in CLASSES:
        return name
    if name == "position":
        return _name_positions(keys, first_of(length))
    if name in ("pair", "triple"):
        phrases = [_join(known.tokens(key), shown) for key in keys]
        short = next((phrase for phrase in phrases if len(phrase.split()) <= 3), phrases[0])
        return f"after {_quote([short], len(phrases) > 1)}"
    words = fold_words(_show(known.tokens(key)[-1], shown) for key in keys)
    if name == "previous":
        return f"next after {_quote(words[:2], len(words) > 2)}"
    if name == "after":
        before = BEFORE[int(known.groups[keys[0]])]
        where = "at start" if before == "nothing" else f"after {before}"
        return f"{_quote(words[:2], len(words) > 2)} {where}"
    return _quote(words[:_TOKENS], len(words) > _TOKENS)


def list_keys(
    kind: int, keys: Sequence[int], known: Keys, shown: Sequence[str], length: int
) -> str:
    """Write a rule whole: every key, tokens in their shown form, a space between keys."""
    name = KINDS[kind]
    if name in CLASSES or name == "position":
        return describe_rule(kind, keys, known, shown, length)
    listed = " ".join(_join(known.tokens(key), shown).replace(" ", SPACE) for key in keys)
    if name == "after":
        return f"after {BEFORE[int(known.groups[keys[0]])]}: {listed}"
    return listed


def write_label(opens: str, says: Sequence[str]) -> str:
    """Join both parts; without anything said that was tested, the first alone."""
    words = [" ".join(word.split()) for word in says]
    short = [word for word in words if len(word.split()) == 1][:_SAYS]
    return f"{opens} → {', '.join(short)}" if short else opens


def _name_positions(keys: Sequence[int], firsts: Sequence[int]) -> str:
    start = firsts[keys[0]]
    after = firsts[keys[-1] + 1] if keys[-1] + 1 < len(firsts) else None
    if after is not None and after - start == 1:
        return f"position {start}"
    if start == 0:
        return "any position" if after is None else f"first {after} tokens"
    return f"positions from {start}" if after is None else f"positions {start}–{after - 1}"


def _show(token: int, shown: Sequence[str]) -> str:
    return "⟨start⟩" if token < 0 else shown[token]


def _join(tokens: Sequence[int], shown: Sequence[str]) -> str:
    """Write consecutive tokens as a reader sees them; a vocabulary of words has no spaces to show."""
    # Of several positions before the beginning one is enough.
    last = len(tokens) - 1
    known = [
        token
        for number, token in enumerate(tokens)
        if token >= 0 or number == last or tokens[number + 1] >= 0
    ]
    pieces = [_show(token, shown) for token in known]
    between = "" if any(SPACE in piece for piece in pieces) else " "
    return between.join(pieces).replace(SPACE, " ").strip() or "".join(pieces)


def _quote(words: Sequence[str], has_more: bool) -> str:
    return ", ".join(f'"{word}"' for word in words) + (" etc." if has_more else "")
