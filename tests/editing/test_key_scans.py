"""Second moments of keys: against the activations themselves, resumed, and refused by word."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.editing import key_moments
from ffnprobe.editing.key_moments import embedded_keys, open_keys, pack_factors
from ffnprobe.errors import DataRefused, FfnProbeError


def test_they_are_the_mean_products_of_activations(family, texts):
    found = fp.scan_keys(family, texts)
    keys = torch.cat(
        [
            trace.activations[:, int(trace.has_bos) :]
            for text in texts.values()
            for trace in _passages(family, text)
        ],
        dim=1,
    ).double()
    assert found.done.tokens == keys.shape[1]
    for layer in found.layers:
        wanted = keys[layer].mT @ keys[layer] / keys.shape[1]
        assert torch.allclose(found.of(layer), wanted, rtol=1e-4, atol=1e-6 * float(wanted.max()))
    assert torch.allclose(found.means(family), keys.mean(1).float(), rtol=1e-3, atol=1e-4)


def _passages(model, text):
    ids, most = model.vocab.ids(text), model.config.positions - 1
    return [fp.run(model, ids[n : n + most], patterns=False) for n in range(0, len(ids), most)]


def test_a_scan_that_was_stopped_ends_as_one_that_was_not(pocket, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(key_moments, "SECONDS_BETWEEN_WRITES", -1.0)
    whole = fp.scan_keys(pocket, texts, layers="1-2", block_tokens=100)

    def stop(done, share):
        if done > 300:
            raise KeyboardInterrupt

    options = {"layers": "1-2", "block_tokens": 100, "store": tmp_path / "keys"}
    with pytest.raises(KeyboardInterrupt):
        fp.scan_keys(pocket, texts, progress=stop, **options)
    left = open_keys(tmp_path / "keys", remedy="")
    assert 0 < left.done.tokens < whole.done.tokens
    assert not left.is_finished
    resumed = fp.scan_keys(pocket, texts, **options)
    assert resumed.done == whole.done
    assert all(torch.equal(resumed.sums[layer], whole.sums[layer]) for layer in (1, 2))
    # A finished store is read: nothing is run again.
    monkeypatch.setattr(key_moments, "watch", None)
    assert fp.scan_keys(pocket, texts, **options).done == whole.done


def test_a_store_of_other_texts_is_refused(pocket, texts, tmp_path):
    fp.scan_keys(pocket, texts, layers="1", store=tmp_path / "keys")
    with pytest.raises(FfnProbeError, match=r"is a scan of keys of other texts: it has 00\."):
        fp.scan_keys(pocket, {"other": "Tiger Woods"}, layers="1", store=tmp_path / "keys")


def test_a_damaged_store_is_refused_in_words(pocket, texts, tmp_path):
    fp.scan_keys(pocket, texts, layers="1", store=tmp_path)
    (tmp_path / "moments.safetensors").write_bytes(b"not safetensors at all")
    with pytest.raises(DataRefused, match="is damaged or of another store"):
        fp.edit(pocket, "Tiger Woods plays the sport of", " tennis", scan=tmp_path)


def test_packed_factors_give_the_second_moments_back(tmp_path, monkeypatch):
    model = fp.load("pocket")
    shipped = embedded_keys(model)
    assert shipped is not None, "python analyses/pocket/pack_keys.py makes them again"
    layer = shipped.layers[0]
    pack_factors(tmp_path / "packed", shipped)
    monkeypatch.setattr(key_moments, "PACKED", tmp_path / "packed")
    again = embedded_keys(model)
    assert torch.allclose(again.of(layer), shipped.of(layer), rtol=2e-3, atol=1e-5)
    assert float(torch.linalg.eigvalsh(shipped.of(layer))[0]) > -1e-12  # 0 where neurons are silent
