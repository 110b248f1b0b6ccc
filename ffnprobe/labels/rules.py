"""Find the best rule of each neuron on the train texts: which keys of which kind its strong tokens have.

A rule is a kind and a set of its keys; it fires where the token's key of that kind is in the set.

    class      the token is of a class (one kind for each class, with one key)
    position   where in the passage it stands: the ranges of `corpora.statistics`
    token      the token itself
    previous   the token before it
    after      the token itself, after a token of one class
    pair       the token before it and itself
    triple     the two tokens before it and itself

Kinds are numbered from the simplest to the most particular. Keys are those of the train texts; a held-out
token whose key was never seen has none, −1.

For a set of keys with s strong tokens among the n that have one of them, and S strong tokens in all,

    precision = s / n      recall = s / S      F1 = 2 s / (n + S)

Of one kind, the set of best F1 is a prefix of the keys in the order of their precision; keys seen once
are not used, and a rule has at most `MOST_KEYS`. The kind is chosen among the train texts: sets are found on
one part of them and compared on the other, so that a kind with many rare keys gains nothing
by remembering them. A simpler kind wins within `TIE`. Then the set is found again on all train texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ffnprobe.labels.splits import Split, TokenClasses, mark_classes, number_runs

CLASSES = (
    "starts of words", "starts of sentences", "numbers", "punctuation", "capitals",
    "repeated tokens",
)  # fmt: skip
SETS = ("token", "previous", "after", "pair", "triple")
KINDS = (*CLASSES, "position", *SETS)
# A code is up to three tokens, each a number below 2^21 (0 where there is none before).
_BITS = 21
MOST_KEYS = 32
LEAST = 2
TIE = 0.01
# Rules are found for so many strong tokens at once, of as many neurons as have them.
PAIRS_AT_ONCE = 2**17


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of one kind: the code of each, and every token's key in both splits."""

    kind: str
    codes: np.ndarray
    train: np.ndarray
    held_out: np.ndarray
    # Keys of one rule are of one group: the class before, for the kind `after`; else all alike.
    groups: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    def tokens(self, key: int) -> tuple[int, ...]:
        """Return the tokens a key is made of, in the order they are read; −1 where there is none."""
        code, many = int(self.codes[key]), {"pair": 2, "triple": 3}.get(self.kind, 1)
        parts = [(code >> (_BITS * field)) & (2**_BITS - 1) for field in reversed(range(many))]
        own = [] if self.kind == "previous" else [parts.pop()]
        return (*(part - 1 for part in parts), *own)


def make_keys(train: Split, held_out: Split, classes: TokenClasses) -> list[Keys]:
    """Number the keys of every kind over the train tokens, and look up those of the held-out ones."""
    marks = [mark_classes(split, classes) for split in (train, held_out)]
    keys = [
        _number(name, *((~mark[name]).astype(np.int64) for mark in marks), only=[0])
        for name in CLASSES
    ]
    ranges = int(max(train.ranges.max(initial=0), held_out.ranges.max(initial=0))) + 1
    keys.append(_number("position", train.ranges, held_out.ranges, only=range(ranges)))
    splits = (train, held_out)
    return keys + [
        _number(kind, *(_encode(each, kind, classes) for each in splits)) for kind in SETS
    ]


def _encode(split: Split, kind: str, classes: TokenClasses) -> np.ndarray:
    """Write what a kind looks at around each token as one number."""
    tokens, previous, before = split.tokens, split.previous + 1, split.before + 1
    match kind:
        case "token":
            return tokens
        case "previous":
            return previous
        case "after":
            kinds = np.where(split.previous >= 0, classes.before[split.previous], 0)
            return np.asarray((kinds.astype(np.int64) << _BITS) | tokens)
        case "pair":
            return np.asarray((previous << _BITS) | tokens)
        case _:
            return np.asarray((before << (2 * _BITS)) | (previous << _BITS) | tokens)


def _number(
    kind: str, train: np.ndarray, held_out: np.ndarray, *, only: Sequence[int] | None = None
) -> Keys:
    """Number codes from 0, those of the train tokens (or only some)."""
    codes = np.unique(train) if only is None else np.array(only, dtype=np.int64)

    def look_up(split: np.ndarray) -> np.ndarray:
        at = np.searchsorted(codes, split).clip(max=len(codes) - 1)
        return np.where(codes[at] == split, at, -1)

    groups = codes >> _BITS if kind == "after" else np.zeros(len(codes), dtype=np.int64)
    return Keys(kind, codes, look_up(train), look_up(held_out), groups)


@dataclass(frozen=True, eq=False)
class Strong:
    """A layer's strong train tokens: pairs of token and neuron, and the part of each token."""

    tokens: np.ndarray
    neurons: np.ndarray
    many: int
    part: np.ndarray

    def split(self) -> "Iterator[Strong]":
        """Yield the strong tokens of a few neurons at a time, numbered from 0, in order."""
        order = np.argsort(self.neurons, kind="stable")
        ends = np.cumsum(np.bincount(self.neurons, minlength=self.many))
        start = done = 0
        while start < self.many:
            end = max(start + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
            mine = order[done : ends[end - 1]]
            yield Strong(self.tokens[mine], self.neurons[mine] - start, end - start, self.part)
            start, done = end, int(ends[end - 1])


@dataclass(frozen=True, eq=False)
class Rules:
    """A layer's rules: the kind of each neuron's, and pairs of neuron and key, sorted by neuron.

    `kinds` is −1 for a neuron without strong tokens; `f1` is on the train texts.
    """

    kinds: np.ndarray
    neurons: np.ndarray
    keys: np.ndarray
    f1: np.ndarray

    def of(self, neuron: int) -> tuple[int, np.ndarray]:
        """Return a neuron's kind and keys."""
        start, end = np.searchsorted(self.neurons, [neuron, neuron + 1])
        return int(self.kinds[neuron]), self.keys[start:end]


@dataclass(frozen=True, eq=False)
class _Candidates:
    """One kind's sets: their F1 on the part held back and on all train texts, and their keys."""

    compared: np.ndarray
    f1: np.ndarray
    neurons: np.ndarray
    keys: np.ndarray


def find_rules(strong: Strong, keys: Sequence[Keys]) -> Rules:
    """Find each neuron's best rule among all kinds, a few neurons at a time to bound memory."""
    parts = [_find_rules(one, keys) for one in strong.split()]
    firsts = np.cumsum([0, *(len(part.kinds) for part in parts)])
    parts = [
        replace(part, neurons=part.neurons + first)
        for part, first in zip(parts, firsts[:-1], strict=True)
    ]
    return Rules(
        *(np.concatenate([vars(part)[each.name] for part in parts]) for each in fields(Rules))
    )


def _find_rules(strong: Strong, keys: Sequence[Keys]) -> Rules:
    # How many strong tokens each neuron has in each part.
    code = strong.part[strong.tokens] * strong.many + strong.neurons
    totals = np.bincount(code, minlength=2 * strong.many).reshape(2, strong.many)
    tried = [_try(strong, each, totals) for each in keys]
    compared = np.stack([each.compared for each in tried])
    whole = np.stack([each.f1 for each in tried])
    # Where the part held back has no strong token, all train texts decide.
    compared = np.where((totals > 0).all(axis=0), compared, whole)
    best = compared.max(axis=0)
    chosen = (compared >= best - TIE).argmax(axis=0)
    chosen = np.where(totals.sum(axis=0) > 0, chosen, -1)
    pairs = [
        (each.neurons[mine], each.keys[mine])
        for number, each in enumerate(tried)
        for mine in [chosen[each.neurons] == number]
    ]
    neurons, rule_keys = (np.concatenate(part) for part in zip(*pairs, strict=True))
    order = np.argsort(neurons, kind="stable")
    f1 = np.where(chosen >= 0, np.take_along_axis(whole, chosen[None].clip(0), axis=0)[0], 0.0)
    return Rules(chosen, neurons[order], rule_keys[order], f1)


def _try(strong: Strong, keys: Keys, totals: np.ndarray) -> _Candidates:
    """Find every neuron's best set of one kind."""
    key = keys.train[strong.tokens]
    has = key >= 0
    parts = strong.part[strong.tokens[has]]
    code = (strong.neurons[has] * np.int64(len(keys)) + key[has]) * 2 + parts
    codes, counts = np.unique(code, return_counts=True)
    pairs, index = np.unique(codes >> 1, return_inverse=True)
    hits = np.zeros((2, len(pairs)), dtype=np.int64)
    hits[codes & 1, index] = counts
    neurons, pair_keys = np.divmod(pairs, len(keys))
    seen = [keys.train[(strong.part == part) & (keys.train >= 0)] for part in (0, 1)]
    tokens = np.stack([np.bincount(each, minlength=len(keys)) for each in seen])
    tables = _Tables(keys, neurons, pair_keys, hits, tokens, totals)
    return _try_spans(tables) if keys.kind == "position" else _try_sets(tables)


@dataclass(frozen=True, eq=False)
class _Tables:
    """The pairs of neuron and key that a strong token has: counts by part, `[part pair]`.

    `tokens` counts all tokens that have a key, `[part key]`; `totals` strong ones, `[part neuron]`.
    """

    keys: Keys
    neurons: np.ndarray
    pair_keys: np.ndarray
    hits: np.ndarray
    tokens: np.ndarray
    totals: np.ndarray


def _try_sets(t: _Tables) -> _Candidates:
    """Choose sets of keys; of groups that exclude each other the one that compares best."""
    many, groups = t.totals.shape[1], int(t.keys.groups.max(initial=0)) + 1
    group = t.neurons * groups + t.keys.groups[t.pair_keys]
    wanted = np.repeat(t.totals, groups, axis=1)
    seen = t.tokens[:, t.pair_keys]
    least = LEAST if t.keys.kind in SETS else 1
    on_one = _choose(group, t.hits[0], seen[0], wanted[0], least)
    compared = _f1(group[on_one], t.hits[1, on_one], seen[1, on_one], wanted[1])
    hits, seen, total = t.hits.sum(axis=0), seen.sum(axis=0), wanted.sum(axis=0)
    on_both = _choose(group, hits, seen, total, least)
    f1 = _f1(group[on_both], hits[on_both], seen[on_both], total)
    compared, f1 = compared.reshape(many, groups), f1.reshape(many, groups)
    has_both = np.asarray((t.totals > 0).all(axis=0))[:, None]
    best = np.where(has_both, compared, f1).argmax(axis=1)
    mine = on_both[t.keys.groups[t.pair_keys[on_both]] == best[t.neurons[on_both]]]
    rows = np.arange(many)
    return _Candidates(compared[rows, best], f1[rows, best], t.neurons[mine], t.pair_keys[mine])


def _choose(
    group: np.ndarray, hits: np.ndarray, seen: np.ndarray, totals: np.ndarray, least: int
) -> np.ndarray:
    """Choose, in each group, the keys whose set has the best F1; return their indices."""
    usable = np.flatnonzero(hits >= least)
    if not len(usable):
        return usable
    # A key seen often is trusted more than one seen twice.
    precision = hits[usable] / (seen[usable] + 1)
    order = usable[np.lexsort((usable, -precision, group[usable]))]
    groups = group[order]
    begins, sizes = _runs(groups)

    def add_up(values: np.ndarray) -> np.ndarray:
        """Add up values from the beginning of each run."""
        sums = np.cumsum(values)
        return np.asarray(sums - np.repeat(sums[begins] - values[begins], sizes))

    all_hits, all_seen = add_up(hits[order]), add_up(seen[order])
    f1 = 2 * all_hits / (all_seen + totals[groups])
    best = np.repeat(np.maximum.reduceat(f1, begins), sizes)
    index = np.arange(len(order))
    last = np.maximum.reduceat(np.where(f1 == best, index, -1), begins)
    chosen = order[index <= np.repeat(last, sizes)]
    # Of many keys those that matter most are kept.
    chosen = chosen[np.lexsort((chosen, -hits[chosen], group[chosen]))]
    return chosen[number_runs(_runs(group[chosen])[1]) < MOST_KEYS]


def _runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find where runs of equal values begin, and how long each is."""
    begins = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    return begins, np.diff(np.r_[begins, len(values)])


def _f1(group: np.ndarray, hits: np.ndarray, seen: np.ndarray, totals: np.ndarray) -> np.ndarray:
    many = len(totals)
    all_hits, all_seen = (np.bincount(group, each, minlength=many) for each in (hits, seen))
    return np.asarray(2 * all_hits / np.maximum(all_seen + totals, 1))


def _try_spans(t: _Tables) -> _Candidates:
    """Choose positions: one range by itself, or all from the beginning to one."""
    many, ranges = t.totals.shape[1], len(t.keys)
    hits = np.zeros((2, many, ranges), dtype=np.int64)
    hits[:, t.neurons, t.pair_keys] = t.hits
    both = np.concatenate([hits, hits.cumsum(axis=2)], axis=2)
    all_seen = np.concatenate([t.tokens, t.tokens.cumsum(axis=1)], axis=1)
    f1 = 2 * both / np.maximum(all_seen[:, None] + t.totals[:, :, None], 1)
    whole = (
        2 * both.sum(axis=0) / np.maximum(all_seen.sum(axis=0) + t.totals.sum(axis=0)[:, None], 1)
    )
    best = whole.argmax(axis=1)
    rows = np.arange(many)
    starts, ends = np.where(best < ranges, best, 0), best % ranges + 1
    sizes = np.where(t.totals.sum(axis=0) > 0, ends - starts, 0)
    neurons = np.repeat(rows, sizes)
    keys = starts[neurons] + number_runs(sizes)
    picked = f1[0].argmax(axis=1)
    return _Candidates(f1[1][rows, picked], whole[rows, best], neurons, keys)
