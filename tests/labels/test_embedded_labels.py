"""The labels in the package: small, of this very pocket or not used at all."""

from dataclasses import replace

import pytest

from ffnprobe.labels import stored_labels


def test_packed_labels_are_found_again_and_only_for_their_model(
    labels, planted, tmp_path, monkeypatch
):
    packed = tmp_path / "labels.safetensors.xz"
    stored_labels.pack(labels, packed)
    monkeypatch.setattr(stored_labels, "PACKED", packed)
    own = replace(planted, source=replace(planted.source, kind="embedded"))
    found = stored_labels.embedded_labels(own)
    assert found is not None
    assert found.table.equals(labels.table)
    assert stored_labels.embedded_labels(planted) is None
    other = replace(own, fingerprint="0" * 32)
    assert stored_labels.embedded_labels(other) is None


def test_pockets_labels_are_short_if_they_are_of_this_pocket(pocket):
    found = stored_labels.embedded_labels(pocket)
    if found is None:
        pytest.skip("no labels of this pocket; python analyses/pocket/pack_labels.py makes them")
    assert stored_labels.PACKED.stat().st_size <= 1_000_000
    assert len(found) == pocket.config.neurons
    assert max(len(text.split()) for text in found.columns["label"]) <= 8
    assert 0 < found.explained < 1
