"""The bridge runs what was loaded, whatever the tokenizer can or cannot say."""

import json

import pytest
import torch

import ffnprobe as fp
from tests.builders import TINY, config_json, write_model


def configured(folder, **values):
    """Write the tiny model with other fields in its configuration."""
    write_model(folder)
    (folder / "config.json").write_text(json.dumps(config_json(TINY) | values))
    return folder


def hugging_face(folder, ids):
    """Return Hugging Face's own logits from the same files."""
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return network(torch.tensor([ids])).logits[0]


def test_a_bos_that_the_tokenizer_has_no_string_for_is_run(tmp_path):
    folder = configured(tmp_path, bos_token_id=300, eos_token_id=300)
    model = fp.load(folder)
    assert model.vocab.tokenizer.id_to_token(300) is None
    trace = fp.run(model, "the cat sat")
    assert trace.tokens[0] == "⟨id:300⟩"
    torch.testing.assert_close(trace.logits, hugging_face(folder, trace.ids), rtol=1e-4, atol=1e-4)


def test_a_folder_with_the_name_of_a_published_model_is_run_in_silence(tmp_path, capfd, caplog):
    folder = configured(tmp_path / "pythia-70m")
    assert len(fp.run(fp.load(folder), "the cat sat")) > 3
    printed = "".join(capfd.readouterr()) + caplog.text
    assert "official" not in printed
    assert printed == ""
