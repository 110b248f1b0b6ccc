"""The passages a scan keeps to label with: all of a small corpus, the same draw however it is cut."""

import torch

import ffnprobe as fp
from ffnprobe.corpora import passages as keeping
from tests.corpora.conftest import OPTIONS


def test_a_small_corpus_is_kept_whole(tiny, speeches, whole):
    kept = fp.Scan.open(whole).kept
    scan = fp.Scan.open(whole)
    assert len(kept.ids) == scan.done.tokens
    assert len(kept) == scan.done.passages
    first = next(iter(kept))
    assert tiny.vocab.text(first.ids) in (speeches / "0.txt").read_text()
    assert kept.passages.tolist() == list(range(len(kept)))


def test_a_large_corpus_is_drawn_from_within_the_bound(tiny, speeches, monkeypatch):
    monkeypatch.setattr(keeping, "MOST_KEPT", 100)
    drawn = [
        fp.scan(tiny, speeches, **OPTIONS | {"block_tokens": size}).kept for size in (30, 64, 2000)
    ]
    assert all(len(one.ids) <= 100 for one in drawn)
    assert 0 < len(drawn[0]) < 20
    for one in drawn[1:]:
        for name, each in one.tensors().items():
            assert torch.equal(each, drawn[0].tensors()[name])
    assert drawn[0].passages.tolist() == sorted(drawn[0].passages.tolist())
    everything = {p.text: p for p in fp.scan(tiny, speeches, **OPTIONS).kept if p.start == 0}
    assert all(everything[p.text].ids == p.ids for p in drawn[0] if p.start == 0)
