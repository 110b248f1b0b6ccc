"""An edited model as a folder: the same model for Hugging Face and for ffnprobe, whole or not there."""

import os

import pytest
import torch
from safetensors import SafetensorError

import ffnprobe as fp
from ffnprobe.editing import exporting
from ffnprobe.errors import FfnProbeError, FileNotWritten
from ffnprobe.models.forward import forward
from ffnprobe.models.loading import change_rows

IDS = torch.tensor([[3, 7, 99, 200, 5]])
JORDAN = "Michael Jordan plays the sport of"


def test_a_folder_of_any_family_is_the_edited_model(family, tmp_path):
    import transformers

    noise = torch.randn(family.config.d_mlp, family.config.d_model)
    changed = change_rows(family, {1: 0.1 * noise})
    exporting.write_folder(changed, tmp_path / "out", files_of=family, card="")
    again = fp.load(tmp_path / "out")
    assert again.identity == changed.identity
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        logits = theirs(IDS).logits
    assert torch.allclose(forward(changed, IDS, {}), logits, atol=1e-3)
    assert not torch.allclose(forward(family, IDS, {}), logits, atol=1e-2)


def test_pocket_edited_is_read_by_transformers_with_its_tokenizer(pocket, tmp_path):
    import transformers

    edited = fp.edit(pocket, JORDAN, " tennis", method="memit")
    fp.export(edited, tmp_path / "out")
    assert fp.load(tmp_path / "out").fingerprint == edited.model.fingerprint
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids = [pocket.vocab.bos, *tokenizer(JORDAN, add_special_tokens=False).input_ids]
    with torch.no_grad():
        said = int(network(torch.tensor([ids])).logits[0, -1].argmax())
    assert said == int(fp.run(edited.model, JORDAN).logits[-1].argmax())
    assert JORDAN in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_folder_that_exists_is_refused(pocket, tmp_path):
    with pytest.raises(FfnProbeError, match="exists already"):
        exporting.write_folder(pocket, tmp_path, files_of=pocket, card="")


def test_a_place_that_is_not_there_or_read_only_is_refused(pocket, tmp_path, monkeypatch):
    with pytest.raises(FfnProbeError, match="there is no folder"):
        exporting.write_folder(pocket, tmp_path / "no" / "out", files_of=pocket, card="")
    monkeypatch.setattr(exporting.os, "access", lambda path, mode: False)
    with pytest.raises(FfnProbeError, match="cannot be written to"):
        exporting.write_folder(pocket, tmp_path / "out", files_of=pocket, card="")


def test_nothing_half_written_is_left(pocket, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting.shutil, "copyfile", fail)
    with pytest.raises(FfnProbeError, match="No space left on device"):
        exporting.write_folder(pocket, tmp_path / "out", files_of=pocket, card="")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_said_and_leaves_nothing(pocket, tmp_path, monkeypatch):
    def full(*given, **named):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")  # fmt: skip

    monkeypatch.setattr(exporting, "save_file", full)
    with pytest.raises(FileNotWritten, match=r"out cannot be written: .*No space left on device"):
        exporting.write_folder(pocket, tmp_path / "out", files_of=pocket, card="")
    assert list(tmp_path.iterdir()) == []


def test_the_weights_are_for_whom_the_other_files_are_for(pocket, tmp_path):
    exporting.write_folder(pocket, tmp_path / "out", files_of=pocket, card="")
    assert len({path.stat().st_mode for path in (tmp_path / "out").iterdir()}) == 1


def test_a_remedy_is_quoted_for_the_shell(tmp_path):
    with pytest.raises(FileNotWritten) as refusal:
        exporting.check_folder(tmp_path / "no such; touch pwned" / "out")
    assert refusal.value.remedy == f"mkdir -p '{tmp_path}/no such; touch pwned'"
    with pytest.raises(FileNotWritten, match="is a name that no file can have"):
        exporting.check_folder(tmp_path / "a\0b")
