"""Files that a command may be handed: good ones, damaged ones, and some that never end."""

import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ffnprobe as fp
from tests.builders import write_model

DIGITS = "9" * 5000
DEEP = 100_000
TEXT = "the cat sat on the mat and the dog ran to the basketball court "
FACTS = "prompt,answer,relation\nthe cat, sat,does\nthe dog, ran,does\nthe mat, in,is\n"


def write_files(folder: Path, tiny: fp.Model) -> list[Path]:
    """Write every kind of file below a folder; return what may be named."""
    files = _texts(folder / "texts") + _facts(folder / "facts") + _models(folder / "models")
    fp.scan(tiny, {"a": TEXT}, store=folder / "store", top=2, workers=1)
    fp.save(fp.read(tiny, "L0N1"), folder / "result.csv")
    damaged = folder / "damaged_store"
    damaged.mkdir()
    for part in (folder / "store").iterdir():
        (damaged / part.name).write_bytes(_flip(part.read_bytes(), part.stat().st_size // 2))
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe.csv")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling.csv").symlink_to("gone")
    return [*files, folder / "store", damaged, folder / "result.csv", folder / "empty",
            folder / "pipe.csv", folder / "loop", folder / "dangling.csv"]  # fmt: skip


def _texts(folder: Path) -> list[Path]:
    folder.mkdir()
    rows = pa.table({"text": [TEXT * 3, "the dog", None], "n": [1, 2, 3]})
    pq.write_table(rows, folder / "rows.parquet")
    data = (folder / "rows.parquet").read_bytes()
    written = {
        "good.txt": TEXT.encode(),
        "empty.txt": b"",
        "bytes.txt": bytes(range(256)),
        "zeros.txt": b"\0" * 5000,
        "surrogate.jsonl": b'{"text": "\\ud800"}\n',
        "rows.jsonl": b'{"text": "the cat"}\n"the dog"\n',
        "shape.jsonl": b'[1]\n{"text": null}\n',
        "digits.jsonl": f'{{"text": {DIGITS}}}\n'.encode(),
        "deep.jsonl": b"[" * DEEP,
        "short.parquet": data[: len(data) // 2],
        "text.parquet": TEXT.encode(),
        "empty.parquet": b"",
    }
    drawn = random.Random(1)
    for number in range(6):
        written[f"flipped{number}.parquet"] = _flip(data, drawn.randrange(len(data)))
    for name, content in written.items():
        (folder / name).write_bytes(content)
    # 300 MB of one letter in a few kilobytes.
    bomb = pa.table({"text": pa.DictionaryArray.from_arrays([0] * 300, ["x" * 2**20])})
    pq.write_table(bomb, folder / "bomb.parquet", compression="zstd")
    return sorted(folder.iterdir())


def _facts(folder: Path) -> list[Path]:
    folder.mkdir()
    samples = [{"subject": "the cat", "object": "sat"}, {"subject": "the dog", "object": "ran"}]
    relation = {"name": "does", "prompt_templates": ["{} has"], "samples": samples}
    shapes = {
        "number": {"prompt_templates": 5},
        "list": {"prompt_templates": [["{}"], None, 7]},
        "null": {"prompt_templates": None},
        "zero_shot": {"prompt_templates_zs": 3},
        "samples": {"samples": 5},
        "sample": {"samples": [5, None, [], {"subject": 1}]},
        "name": {"name": ["a", {"b": 1}]},
        "map": {"prompt_templates": {"a": 1}, "samples": {"a": 1}},
    }
    written = {
        "good.csv": FACTS,
        "good.json": json.dumps(relation),
        "good.jsonl": '{"sub_label": "the cat", "obj_label": "sat", "template": "[X] has [Y] ."}\n',
        "shape.jsonl": '{"sub_label": [1], "obj_label": {}, "template": 4, "predicate_id": [2]}\n5\n',
        "deep.json": "[" * DEEP,
        "deeper.json": '{"a":' * DEEP,
        "digits.json": f'{{"samples": {DIGITS}, "prompt_templates": []}}',
        "digits.jsonl": f'{{"sub_label": {DIGITS}}}\n',
        "deep.jsonl": "[" * DEEP + "\n",
        "rome.json": json.dumps([{"prompt": 5, "attribute": [1]}, 7, None]),
        "counterfact.json": json.dumps([{"requested_rewrite": 5}, {"requested_rewrite": {}}, 3]),
        "empty.csv": "",
        "header.csv": "prompt,answer\n",
        "ragged.csv": "prompt,answer\na\n\na,b,c\n,\n",
        "field.csv": "prompt,answer\n" + "x" * 200_000 + ", sat\n",
        "nul.csv": "prompt,answer\nthe\0cat, sat\n",
        "quote.csv": 'prompt,answer\n"the cat, sat\n',
        "bidi.csv": "prompt,answer\nthe cat,\u202e sat\n=cmd, +1\n",
        "nan.json": '{"prompt_templates": [NaN], "samples": [Infinity]}',
    }
    written |= {f"{name}.json": json.dumps(relation | odd) for name, odd in shapes.items()}
    for name, content in written.items():
        (folder / name).write_text(content)
    (folder / "latin.csv").write_bytes(b"prompt,answer\ncaf\xe9, sat\n")
    return [folder, *sorted(folder.iterdir())]


def _models(folder: Path) -> list[Path]:
    folder.mkdir()
    configs = {
        "list": "[]", "deep": "[" * DEEP, "digits": f'{{"model_type": "gpt2", "n_layer": {DIGITS}}}',
        "other": '{"model_type": "bert"}', "typed": '{"model_type": ["gpt2"]}', "broken": "{",
    }  # fmt: skip
    for name, content in configs.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(content)
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "config.json")
    (folder / "device").mkdir()
    (folder / "device" / "config.json").symlink_to("/dev/zero")
    for name in ("tokenizer.json", "model.safetensors"):
        for how, target in (("zero", "/dev/zero"), ("none", "/dev/null")):
            odd = write_model(folder / f"{how}_{name}")
            (odd / name).unlink()
            (odd / name).symlink_to(target)
    cut = write_model(folder / "cut")
    data = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(data[:-100])
    (folder / "short.gguf").write_bytes(b"GGUF\3\0\0\0")
    os.mkfifo(folder / "pipe.gguf")
    return sorted(folder.iterdir())


def _flip(data: bytes, where: int) -> bytes:
    return data[:where] + bytes([data[where] ^ 0x10]) + data[where + 1 :]
