"""Write an edited model as an ordinary Hugging Face folder, with its certificate as the folder's card.

Tensors keep the dtype they have in memory, so that the folder loads to the very same fingerprint:
what an edit touched is fp32, what a GGUF file held is dequantised to fp32, all else is as its file has
it. `config.json` says float32, so that Hugging Face rounds nothing. The folder is written under a
temporary name next to it and then renamed.
"""

import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from ffnprobe.arguments import verb
from ffnprobe.editing.certificates import Certificate
from ffnprobe.editing.edits import Edited
from ffnprobe.errors import FileNotWritten
from ffnprobe.files import TEMPORARY, check_utf8, quote, sync_folder
from ffnprobe.models.families import FAMILIES
from ffnprobe.models.model import Model

# A card is for reading; `save` writes every row.
ROWS = 20
# What a tokenizer may consist of beside tokenizer.json, taken over from the model's own folder.
TOKENIZER_FILES = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "chat_template.jinja", "generation_config.json",
)  # fmt: skip


@verb
def export(
    edited: Edited, folder: str | os.PathLike[str], *, certificate: Certificate | None = None
) -> None:
    """Save an edited model as a new Hugging Face folder, which `fp.load` and transformers read.

    The folder is written whole or not at all; one that exists is refused. It loads to the same
    fingerprint. Its README.md says what was edited, and with a certificate what else changed.

    >>> import ffnprobe as fp, tempfile
    >>> edited = fp.edit(fp.load("pocket"), "Michael Jordan plays the sport of", " tennis")
    >>> fp.export(edited, tempfile.mkdtemp() + "/tennis")
    """
    own = edited.original
    lines = [
        f"# {own.name}, edited",
        f"{own.source}, weights {own.fingerprint}, edited by ffnprobe {edited.provenance.version}: "
        f"{edited.provenance.describe()}.",
        "## Written",
        *(f'- "{one.prompt}" → "{one.answer}"' for one in edited.requests[:ROWS]),
    ]
    if len(edited.requests) > ROWS:
        lines.append(f"- … and {len(edited.requests) - ROWS:,} more")
    if certificate is not None:
        lines += [
            "## Certificate",
            f"{certificate.title}.",
            f"{certificate.caption}.",
            *(
                f"- {row.measure}: {row.before:.4f} before, {row.after:.4f} after ({row.cases:,})"
                for row in certificate.table.itertuples()
            ),
            *(
                f'- changed: "{row.prompt}" {row.said_before} → {row.said_after}'
                for row in certificate.changed.head(ROWS).itertuples()
            ),
        ]
    write_folder(edited.model, Path(folder), files_of=own, card="\n\n".join(lines) + "\n")


def check_folder(folder: Path) -> None:
    """Say before the work begins if a model could not be written there."""
    check_utf8(folder, refuse=FileNotWritten)
    if os.path.lexists(folder):
        raise FileNotWritten(f"{folder} exists already.", remedy="the name of a new folder")
    parent = folder.absolute().parent
    if not parent.is_dir():
        raise FileNotWritten(f"there is no folder {parent}.", remedy=f"mkdir -p {quote(parent)}")
    if not os.access(parent, os.W_OK):
        raise FileNotWritten(f"the folder {parent} cannot be written to.", remedy="another folder")


def write_folder(model: Model, folder: Path, *, files_of: Model, card: str) -> None:
    """Write a model to a new folder; `files_of` is the model whose tokenizer files are taken over."""
    check_folder(folder)
    target = folder.absolute()
    temporary = target.parent / f"{TEMPORARY}{os.getpid()}.{secrets.token_hex(8)}"
    try:
        temporary.mkdir()
        _write(model, temporary, files_of, card)
        os.rename(temporary, target)
        sync_folder(target.parent)
    except (OSError, SafetensorError) as error:  # the latter of a disk that is full
        why = getattr(error, "strerror", None) or error
        raise FileNotWritten(f"{folder} cannot be written: {why}.") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(model: Model, folder: Path, files_of: Model, card: str) -> None:
    lay, prefix = model.layout, model.layout.prefixes[0]
    # Tensors are named as Hugging Face's own code does.
    tensors = {
        f"{lay.published_head}.weight" if name == f"{lay.head}.weight" else f"{prefix}{name}":
        tensor.detach().cpu().contiguous()
        for name, tensor in model.weights.items()
    }  # fmt: skip
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        **model.config.native, "architectures": [FAMILIES[model.config.family].classes[1]],
        "model_type": model.config.family, "dtype": "float32",
        "tie_word_embeddings": model.config.is_tied,
    }  # fmt: skip
    config.pop("torch_dtype", None)
    configuration = folder / "config.json"
    configuration.write_text(json.dumps(config, indent=2, default=str), encoding="utf-8")
    # safetensors writes for its owner alone; the weights are for whom the other files are for.
    shutil.copymode(configuration, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(model.vocab.tokenizer.to_str(), encoding="utf-8")
    if files_of.source.kind in ("embedded", "folder", "hub"):
        for name in TOKENIZER_FILES:
            if (path := files_of.source.folder() / name).is_file():
                shutil.copyfile(path, folder / name)
    settings = folder / "tokenizer_config.json"
    if not settings.is_file():
        # The tokenizer came without files of its own, as one of a GGUF file does.
        vocab = model.vocab
        described: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": model.config.positions,
            "add_bos_token": vocab.is_begun_by_bos,
        }
        if vocab.bos is not None and (token := vocab.tokenizer.id_to_token(vocab.bos)) is not None:
            described["bos_token"] = token
        settings.write_text(json.dumps(described, indent=2), encoding="utf-8")
    (folder / "README.md").write_text(card, encoding="utf-8")
