"""What is not proven right is refused by name."""

import json

import pytest

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.config import parse_config
from ffnprobe.models.families import FAMILIES
from tests.families.builders import write_family

REFUSED = {
    'is of architecture "bloom", which ffnprobe does not read': {"model_type": "bloom"},
    'is of architecture "None"': {"model_type": None},
    r'is a mixture of experts \("mixtral"\)': {"model_type": "mixtral"},
    r'is a mixture of experts \("qwen3_moe"\)': {"model_type": "qwen3_moe"},
    r'is a mixture of experts \("llama"\)': {"num_local_experts": 8},
    r"the weights are quantised \(gptq\)": {"quantization_config": {"quant_method": "gptq"}},
    "mlp_bias is True, which ffnprobe is not proven to get right": {"mlp_bias": True},
    'activation function "relu2" is not one': {"hidden_act": "relu2"},
    "6 heads do not divide into 4 heads of keys": {"num_key_value_heads": 4},
    "hidden_size is 'wide', not a positive whole number": {"hidden_size": "wide"},
    "does not say intermediate_size": {"intermediate_size": None},
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_configuration_not_proven_right_is_refused_in_words(words, tmp_path):
    folder = write_family(tmp_path, "llama")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | REFUSED[words]))
    with pytest.raises(ModelNotLoaded, match=words) as refused:
        fp.load(folder)
    if "architecture" in words or "mixture" in words:
        assert all(family in str(refused.value.remedy) for family in FAMILIES)


@pytest.mark.parametrize(
    ("family", "fields", "words"),
    [
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before is False"),
        ("opt", {"word_embed_proj_dim": 16}, "word_embed_proj_dim is 16"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "looks ahead"),
        ("gpt_neo", {"attention_types": [[["global"], 2]]}, "attention_types do not name 3 layers"),
        ("qwen3", {"layer_types": ["full_attention"]}, "layer_types do not name 3 layers"),
    ],
)
def test_a_variant_of_a_family_not_proven_right_is_refused(family, fields, words):
    values = {
        "model_type": family, "hidden_size": 40, "num_hidden_layers": 3, "num_layers": 3,
        "num_attention_heads": 5, "num_heads": 5, "intermediate_size": 52, "ffn_dim": 52,
        "max_position_embeddings": 29, "vocab_size": 301, "num_key_value_heads": 5,
        "attention_types": [[["global"], 3]],
    }  # fmt: skip
    parse_config(values, where="config.json")
    with pytest.raises(ModelNotLoaded, match=words):
        parse_config(values | fields, where="config.json")


def test_a_way_of_turning_nobody_knows_is_refused_when_run(tmp_path):
    folder = write_family(tmp_path, "llama")
    path = folder / "config.json"
    values = json.loads(path.read_text()) | {"rope_parameters": {"rope_type": "spiral"}}
    path.write_text(json.dumps(values))
    with pytest.raises(ModelNotLoaded, match=r"its configuration is refused: .*spiral"):
        fp.run(fp.load(folder), "the cat")
