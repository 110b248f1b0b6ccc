"""Models one already has: Hugging Face's and TransformerLens's objects in, our bridge and hooks out."""

import warnings

import pytest
import torch

import ffnprobe as fp

TEXT = "the cat sat on the basketball court"


@pytest.fixture(scope="module")
def theirs(tiny_folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_folder).eval()


def make_bridge(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformer_lens.model_bridge.sources import build_bridge_from_module

        return build_bridge_from_module(
            module, type(module).__name__, hf_config=module.config, device="cpu", model_name="mine"
        )


def test_a_hugging_face_model_is_taken_as_it_is(theirs, tiny, tiny_folder):
    model = fp.load(theirs, device="cpu", tokenizer=tiny_folder)
    assert model.fingerprint == tiny.fingerprint
    trace = fp.run(model, TEXT)
    with torch.no_grad():
        wanted = theirs(torch.tensor([trace.ids])).logits[0]
    assert torch.allclose(trace.logits, wanted, atol=1e-4)
    assert model.source.kind == "object"
    assert "GPT2LMHeadModel" in str(trace.provenance.source)
    first, last = next(theirs.parameters()), next(iter(model.weights.values()))
    assert first.data_ptr() == last.data_ptr(), "no copy is made"
    assert first.requires_grad, "and the object is not changed"


def test_a_bridge_is_taken_and_its_hooks_stay_its_own(tiny, tiny_folder):
    from transformers import AutoModelForCausalLM

    bridge = make_bridge(AutoModelForCausalLM.from_pretrained(tiny_folder).eval())
    model = fp.load(bridge, device="cpu", tokenizer=tiny_folder)
    assert model.fingerprint == tiny.fingerprint
    assert torch.allclose(
        fp.run(model, TEXT).activations, fp.run(tiny, TEXT).activations, atol=1e-5
    )
    assert model.bridge is not bridge


def test_our_bridge_is_usable_and_the_trace_names_its_hooks(tiny, tiny_trace):
    ids = torch.tensor([tiny_trace.ids])
    logits, cache = tiny.bridge.run_with_cache(ids)
    assert torch.allclose(logits[0], tiny_trace.logits, atol=1e-4)
    assert {"scores", "activations", "before_mlp", "patterns", "final"} <= set(tiny_trace.hooks)
    for name, hook in tiny_trace.hooks.items():
        held = getattr(tiny_trace, name)
        if "{layer}" not in hook:
            assert torch.allclose(cache[hook][0], held, atol=1e-5), name
            continue
        for layer in range(tiny.config.layers):
            assert torch.allclose(cache[hook.format(layer=layer)][0], held[layer], atol=1e-5), name


def test_a_hook_of_theirs_does_what_our_ablation_does(tiny, tiny_trace):
    """Zeroing one activation by a TransformerLens hook is `ablate` with zero, in the model's own logit."""

    def zero(activations, hook):
        activations[:, -1, 7] = 0
        return activations

    token, place = 280, tiny_trace.hooks["activations"].format(layer=1)
    hooked = tiny.bridge.run_with_hooks(torch.tensor([tiny_trace.ids]), fwd_hooks=[(place, zero)])
    effect = fp.ablate(
        tiny_trace, token, neurons=["L1N7"], replace="zero", convention="folded"
    ).values[1, 7]
    lost = tiny_trace.logits[-1, token] - hooked[0, -1, token]
    assert float(effect) == pytest.approx(float(lost.detach()), abs=1e-4)


def test_what_cannot_be_taken_is_refused_in_words(theirs, tiny_folder, tmp_path):
    with pytest.raises(fp.FfnProbeError, match="a Linear is not a model that ffnprobe can read"):
        fp.load(torch.nn.Linear(3, 4))
    from transformers import AutoModelForCausalLM

    folded = make_bridge(AutoModelForCausalLM.from_pretrained(tiny_folder).eval())
    folded._weights_processed = True
    with pytest.raises(fp.FfnProbeError, match="has changed weights"):
        fp.load(folded, tokenizer="ids")
    own = AutoModelForCausalLM.from_config(theirs.config)
    own.config._name_or_path = ""
    with pytest.raises(fp.FfnProbeError, match=r"has no tokenizer\.\n  try: load"):
        fp.load(own)
    model = fp.load(theirs, device="cpu", tokenizer=tiny_folder)
    with pytest.raises(fp.FfnProbeError, match="another cannot load it"):
        _ = model.location


def test_an_object_that_computes_something_else_is_noticed(tiny_folder):
    from transformers import AutoModelForCausalLM

    changed = AutoModelForCausalLM.from_pretrained(tiny_folder).eval()
    changed.transformer.h[1].register_forward_hook(
        lambda module, given, out: (out[0] * 2, *out[1:]) if isinstance(out, tuple) else out * 2
    )
    with pytest.raises(fp.FfnProbeError, match="is not run right"):
        fp.load(changed, device="cpu", tokenizer=tiny_folder)
