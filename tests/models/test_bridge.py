"""The bridge runs what was loaded, whatever the tokenizer can or cannot say."""

import json

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import PromptRefused
from tests.builders import TINY, config_json, random_weights, write_model


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


OVERFLOWING = {
    "run": lambda model: fp.run(model, "the cat sat"),
    "score": lambda model: fp.score(model, [fp.FactRow("the cat", " sat")]),
    "scan": lambda model: fp.scan(model, {"text": "the cat sat on the mat"}),
}


@pytest.mark.parametrize("verb", OVERFLOWING)
def test_logits_that_overflow_are_refused_as_such(verb, tmp_path):
    weights = random_weights(TINY)
    weights["ln_f.weight"] = weights["ln_f.weight"] * 1e38
    weights["h.1.mlp.c_proj.weight"] = weights["h.1.mlp.c_proj.weight"] * 1e38
    model = fp.load(write_model(tmp_path, weights=weights))
    with pytest.raises(PromptRefused, match=r"overflows on this prompt: its .* exceed what fp32"):
        OVERFLOWING[verb](model)


def test_positions_under_their_older_name_are_read(tmp_path):
    folder = configured(tmp_path)
    values = config_json(TINY)
    values["n_ctx"] = values.pop("n_positions")
    (folder / "config.json").write_text(json.dumps(values))
    assert len(fp.run(fp.load(folder), "the cat sat")) > 3
