"""Every option of a configuration that changes numbers is read, or refused by its name."""

import dataclasses
import json

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models import forward
from ffnprobe.models.bridge import HARMLESS
from ffnprobe.models.config import parse_config
from ffnprobe.models.families import FAMILIES
from tests.families.builders import write_family

PLAIN = {
    "model_type": "gpt2", "n_layer": 3, "n_head": 5, "n_embd": 35, "n_positions": 29,
    "vocab_size": 301,
}  # fmt: skip


def changed(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_every_option_hugging_face_has_is_known(family):
    import transformers

    known = FAMILIES[family]
    options = {each.name for each in dataclasses.fields(getattr(transformers, known.classes[0]))}
    assert options - known.all_options - HARMLESS == set()
    assert not known.all_options & HARMLESS


def test_an_option_that_only_a_newer_transformers_has_is_refused_by_name(tmp_path, monkeypatch):
    fewer = FAMILIES["llama"].options - {"rms_norm_eps"}
    known = dataclasses.replace(FAMILIES["llama"], options=fewer, needs={})
    monkeypatch.setitem(FAMILIES, "llama", known)
    folder = write_family(tmp_path, "llama", rms_norm_eps=0.25)
    with pytest.raises(
        ModelNotLoaded, match=r"the option rms_norm_eps is 0\.25; ffnprobe does not know"
    ):
        fp.run(fp.load(folder), "the cat")


def test_what_hugging_face_does_not_read_does_not_reach_the_bridge(tmp_path):
    """TransformerLens caps logits wherever a configuration has the field, Hugging Face in Gemma alone."""
    from transformers import AutoModelForCausalLM

    folder = changed(write_family(tmp_path, "llama"), final_logit_softcapping=0.5)
    trace = fp.run(fp.load(folder), "the cat sat on the mat")
    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([trace.ids])).logits[0]
    torch.testing.assert_close(trace.logits, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("who", ["TransformerLens", "ffnprobe"])
def test_codes_that_disagree_are_found_when_a_model_is_first_run(who, tmp_path, monkeypatch):
    """What TransformerLens misread was once run in silence, four logits off."""
    monkeypatch.setenv("FFNPROBE_CACHE", str(tmp_path / "cache"))  # nothing is known of it yet
    if who == "TransformerLens":
        # Hugging Face reads the option, TransformerLens does not.
        plain = dataclasses.replace(FAMILIES["gpt2"], rewrite=None)
        monkeypatch.setitem(FAMILIES, "gpt2", plain)
        folder = write_family(tmp_path, "gpt2 unscaled")
    else:
        monkeypatch.setattr(forward, "run_steps", lambda *given: torch.zeros(1, 8, 301))
        folder = write_family(tmp_path, "gpt2")
    model = fp.load(folder)
    with pytest.raises(
        ModelNotLoaded, match=f"the logits of {who} are off by .* from those of Hug"
    ):
        fp.run(model, "the cat")
    assert fp.read(model, "L1N2") is not None


REFUSED = {
    "layer_norm_epsilon is nan, not a positive number": {"layer_norm_epsilon": float("nan")},
    "layer_norm_epsilon is -1e-05, not a positive": {"layer_norm_epsilon": -1e-5},
    "layer_norm_epsilon is 'small', not a positive": {"layer_norm_epsilon": "small"},
    "scale_attn_weights is 'false', not true or false": {"scale_attn_weights": "false"},
    "n_layer is 1000000000; ffnprobe reads at most 10,000": {"n_layer": 10**9},
    r"n_embd is \(more than 2\^64\); ffnprobe reads at most": {"n_embd": 10**5000},
    "vocab_size is 10000000000; ffnprobe reads at most": {"vocab_size": 10**10},
    "per_layer_config is set": {"per_layer_config": {"0": {"n_inner": 12}}},
    'activation function "{' : {"activation_function": {"a": 1}},
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_a_field_out_of_bounds_is_refused_before_anything_is_made(words):
    parse_config(PLAIN, where="config.json")
    with pytest.raises(ModelNotLoaded, match=words):
        parse_config(PLAIN | REFUSED[words], where="config.json")


@pytest.mark.parametrize(
    "types", [[[["global"], 10**12]], [[["global"], -3]], "global", [[["global", 7], 3]], [3]]
)
def test_kinds_of_attention_are_counted_before_they_are_written_out(types):
    values = {
        "model_type": "gpt_neo", "hidden_size": 35, "num_layers": 3, "num_heads": 5,
        "max_position_embeddings": 29, "vocab_size": 301, "attention_types": types,
    }  # fmt: skip
    with pytest.raises(ModelNotLoaded, match="attention_types do not name 3 layers"):
        parse_config(values, where="config.json")


def test_a_number_of_labels_is_not_allocated(tmp_path):
    folder = changed(write_family(tmp_path, "gpt2"), num_labels=10**8)
    assert len(fp.run(fp.load(folder), "the cat")) > 1
