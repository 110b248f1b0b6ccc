"""Every option of each family's configuration: which are read, which change no number.

The reference is Hugging Face's own code. An option that its class for a family does not have changes
nothing there, so it is not handed on. An option that it has is read here, or left to its code for the
rotary embeddings, or changes no number when a model is run in fp32. A new option of a new version of
transformers is in none of these lists: it is refused by name where it is set.
"""

# Names of one size, as the families spell them.
_SIZES = frozenset(
    ("vocab_size", "hidden_size", "n_embd", "num_hidden_layers", "n_layer", "num_layers",
     "num_attention_heads", "n_head", "num_heads", "max_position_embeddings", "n_positions",
     "intermediate_size", "n_inner", "ffn_dim", "tie_word_embeddings", "bos_token_id")
)  # fmt: skip
# Computed by Hugging Face's code, which our own arithmetic asks for its cosines and sines.
_ROTARY = frozenset(
    ("rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base", "rotary_pct",
     "partial_rotary_factor", "rope_local_base_freq")
)  # fmt: skip
_SHARED = _ROTARY | {"num_key_value_heads", "head_dim", "rms_norm_eps"}
_GATED = _SHARED | {"hidden_act"}
_QWEN = _GATED | {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"}
_GEMMA = _SHARED | {
    "hidden_activation", "sliding_window", "layer_types", "attention_bias", "query_pre_attn_scalar", "final_logit_softcapping",
    "attn_logit_softcapping", "use_bidirectional_attention",
}  # fmt: skip
READ = {
    family: _SIZES | options
    for family, options in {
        "gpt2": frozenset(
            ("activation_function", "layer_norm_epsilon", "scale_attn_weights",
             "scale_attn_by_inverse_layer_idx", "add_cross_attention")
        ),
        "gpt_neo": frozenset(
            ("activation_function", "layer_norm_epsilon", "attention_types", "window_size")
        ),
        "gpt_neox": _ROTARY
        | {"hidden_act", "layer_norm_eps", "use_parallel_residual", "attention_bias"},
        "opt": frozenset(
            ("activation_function", "do_layer_norm_before", "_remove_final_layer_norm",
             "word_embed_proj_dim", "enable_bias", "layer_norm_elementwise_affine")
        ),
        "llama": _GATED | {"attention_bias", "mlp_bias"},
        "mistral": _GATED | {"sliding_window"},
        "qwen2": _QWEN,
        "qwen3": _QWEN | {"attention_bias"},
        "gemma2": _GEMMA,
        "gemma3_text": _GEMMA | {"sliding_window_pattern"},
    }.items()
}  # fmt: skip
# How a model is trained, stored, stopped or put to another task; and what only matters below fp32.
HARMLESS = frozenset(
    ("resid_pdrop", "embd_pdrop", "attn_pdrop", "resid_dropout", "embed_dropout", "attention_dropout",
     "hidden_dropout", "classifier_dropout", "dropout", "layerdrop", "initializer_range", "init_std",
     "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
     "summary_first_dropout", "use_cache", "eos_token_id", "pad_token_id", "is_decoder",
     "pretraining_tp", "reorder_and_upcast_attn", "transformers_version", "architectures",
     "output_hidden_states", "return_dict", "dtype", "chunk_size_feed_forward", "is_encoder_decoder",
     "id2label", "label2id", "problem_type")
)  # fmt: skip
# Options of any family that give one layer other sizes than the next.
UNEVEN = "per_layer_config"
