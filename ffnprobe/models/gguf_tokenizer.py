"""The tokenizer a GGUF file describes, built by transformers and made to agree with the file."""

import json
from typing import TYPE_CHECKING

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.families import ARCHITECTURES
from ffnprobe.models.gguf_header import Header
from ffnprobe.models.panics import guard
from ffnprobe.models.tokenizer import without_prefix

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Cut as GPT-2 does, each digit by itself, which transformers' table of cuts leaves out.
_DIGITS_APART = ("smollm",)
_AS_GPT2 = ("gpt-2",)


def build_tokenizer(header: Header) -> "Tokenizer":
    """Build the tokenizer, refusing one whose text would be cut in another way than the model's."""
    from tokenizers import pre_tokenizers
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    said = header.metadata
    if "tokenizer.ggml.tokens" not in said:
        raise ModelNotLoaded(f"{header.path} has no tokenizer.")
    cut, family = said.get("tokenizer.ggml.pre", "default"), ARCHITECTURES[header.architecture]
    if said.get("tokenizer.ggml.model") == "gpt2":
        is_plain = cut in _AS_GPT2 or (cut == "default" and family.is_cut_by_default)
        if not is_plain and cut not in (*GGUF_PRE_TOKENIZER_SPLITS, *_DIGITS_APART):
            raise ModelNotLoaded(
                f'{header.path} cuts its text by "{cut}", which transformers does not read from GGUF.',
                remedy="the same model as a folder in Hugging Face layout",
            )
    try:
        architecture, described, _ = get_gguf_tokenizer(str(header.path))
        tokenizer, _ = guard(lambda: convert_gguf_tokenizer(architecture, described))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise ModelNotLoaded(f"the tokenizer of {header.path} cannot be read: {error}.") from None
    if cut in _DIGITS_APART:
        apart = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([apart, tokenizer.pre_tokenizer])
    if said.get("tokenizer.ggml.add_space_prefix") is False:
        tokenizer = without_prefix(tokenizer)
    return _drop_strangers(tokenizer, len(described["tokens"]))


def _drop_strangers(tokenizer: "Tokenizer", size: int) -> "Tokenizer":
    """Drop special tokens the file does not have, which transformers adds of its own."""
    if tokenizer.get_vocab_size() <= size:
        return tokenizer
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < size]
    return type(tokenizer).from_str(json.dumps(state))
