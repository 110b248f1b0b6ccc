"""`run`, `params`, `models`, and what every command has in common."""

import io
import json
import os
import subprocess
import sys

import pandas as pd
import pytest

import ffnprobe as fp
from tests.builders import write_model
from tests.cli.runner import ffnprobe, nothing_written, refused
from tests.conftest import JORDAN

HEAVY = ("torch", "transformer_lens", "transformers", "pandas", "plotly", "huggingface_hub")


def test_run_says_basketball_first():
    result = ffnprobe("run", JORDAN, "--top", "3")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("next token after <|endoftext|> Michael ␣Jordan")
    assert lines[4].split()[:2] == ["1", "␣basketball"]
    assert result.stderr.startswith("pocket (embedded, weights ")


def test_a_command_says_who_ran_the_model():
    own, hooked = (ffnprobe("run", JORDAN, "--format", "json", *more) for more in ([], ["--hooks"]))
    assert "run by ffnprobe's own forward pass)" in own.stderr
    assert "run by TransformerLens hooks)" in hooked.stderr
    ours, theirs = json.loads(own.stdout), json.loads(hooked.stdout)
    assert ours["provenance"].pop("run_by") == "ffnprobe's own forward pass"
    assert theirs["provenance"].pop("run_by") == "TransformerLens hooks"
    assert ours["provenance"] == theirs["provenance"]
    for one, other in zip(ours["rows"], theirs["rows"], strict=True):
        assert one["token"] == other["token"]
        assert one["logit"] == pytest.approx(other["logit"], rel=1e-5)
    assert "- run by: ffnprobe's own" in ffnprobe("run", JORDAN, "--format", "md").stdout
    assert "run by" not in ffnprobe("read", "L3N12").stderr


def test_json_holds_provenance_and_rows():
    answer = json.loads(ffnprobe("run", JORDAN, "--format", "json", "--temperature", "2").stdout)
    assert set(answer) == {"provenance", "result", "rows"}
    assert len(answer["rows"]) == 10
    assert answer["rows"][0]["token"] == "␣basketball"
    provenance = answer["provenance"]
    assert provenance["model"] == "pocket"
    assert provenance["prompt"] == JORDAN
    assert provenance["bos"] is True
    assert provenance["tokens"][0] == "<|endoftext|>"
    assert provenance["version"] == fp.__version__
    assert len(provenance["fingerprint"]) == 32


def test_csv_opens_with_plain_pandas_and_carries_its_provenance_in_the_last_column():
    table = pd.read_csv(io.StringIO(ffnprobe("run", JORDAN, "--format", "csv", "-q").stdout))
    assert list(table.columns) == ["rank", "token", "id", "logit", "probability", "provenance"]
    assert json.loads(table.provenance[0])["provenance"]["prompt"] == JORDAN
    assert table.provenance[1:].isna().all()
    assert table["rank"].dtype == table["id"].dtype == "int64"
    assert table.token[0] == "␣basketball"


def test_markdown_escapes_what_markdown_would_read():
    text = ffnprobe("run", JORDAN, "--format", "md", "-q").stdout
    said, table = text.split("\n\n")[:2]
    assert said.startswith("next token after &lt;&#124;endoftext&#124;&gt; Michael ")
    assert table.startswith("| rank | token | id | logit | probability |\n| --- |")


@pytest.mark.parametrize("suffix", ["csv", "json", "md", "parquet"])
def test_out_writes_the_file_its_suffix_names(suffix, tmp_path):
    target = tmp_path / f"next.{suffix}"
    result = ffnprobe("run", JORDAN, "--out", target, "--top", "2")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"wrote {target}" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    if suffix == "parquet":
        assert pd.read_parquet(target).token[0] == "␣basketball"
        import pyarrow.parquet

        note = pyarrow.parquet.read_schema(target).metadata[b"ffnprobe"]
        assert json.loads(note)["provenance"]["prompt"] == JORDAN
        assert json.loads(note)["result"]["type"] == "Trace"
    else:
        assert "␣basketball" in target.read_text(encoding="utf-8")


def test_a_prompt_comes_from_standard_input():
    typed = ffnprobe("run", "-", "--format", "json", stdin=JORDAN + "\n")
    assert typed.stdout == ffnprobe("run", JORDAN, "--format", "json").stdout
    words = refused("run", "-", stdin=b"caf\xe9")
    assert "error: standard input is not UTF-8: byte 3 is 0xE9." in words


def test_the_environment_names_the_default_model(tiny_folder, monkeypatch):
    monkeypatch.setenv("FFNPROBE_MODEL", str(tiny_folder))
    assert f"(folder {tiny_folder}" in ffnprobe("run", "the cat").stderr


def test_params_of_gpt2_small_need_no_weights(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    result = ffnprobe("params", "--model", "gpt2", "--format", "json")
    rows = {row["part"]: row for row in json.loads(result.stdout)["rows"]}
    assert rows["all"]["parameters"] == 124_439_808
    assert rows["MLP"]["parameters"] == 56_669_184
    assert round(rows["MLP"]["share_without_embeddings"], 3) == 0.666
    assert rows["token embedding"]["share_without_embeddings"] is None


def test_params_count_what_hugging_face_counts(tiny_folder, tmp_path):
    from dataclasses import replace

    from transformers import AutoModelForCausalLM

    from tests.builders import TINY

    untied = write_model(tmp_path / "untied", replace(TINY, is_tied=False))
    for folder in (tiny_folder, untied):
        theirs = AutoModelForCausalLM.from_pretrained(folder).num_parameters()
        rows = json.loads(ffnprobe("params", "-m", folder, "--format", "json").stdout)["rows"]
        assert rows[-1]["parameters"] == theirs
        parts = rows[:-2]
        assert sum(row["parameters"] for row in parts) == theirs
        assert sum(row["share"] for row in parts) == pytest.approx(1)


def test_models_says_what_is_here():
    rows = json.loads(ffnprobe("models", "--format", "json").stdout)["rows"]
    assert [row["model"] for row in rows] == [
        "pocket", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2", "smollm2",
        "gemma3-270m",
    ]  # fmt: skip
    assert rows[0]["here"] == "yes"
    assert [row["parameters"] for row in rows[1:]] == [
        124_439_808, 354_823_168, 774_030_080, 1_557_611_200, 81_912_576, 134_515_008,
        268_098_176,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "stated"),
    [
        (("run", ""), "error: the prompt is empty."),
        (("run", "word " * 100), "tokens with BOS; pocket has 64 positions."),
        (("run", "x", "--model", "pockett"), '"pockett" is not a known model, and not a folder here.\n  try: pocket'),
        (("run", "x", "--model", "gtp2"), "try: gpt2"),
        (("run", "x", "--model", "./nowhere"), "there is no folder ./nowhere."),
        (("run", "x", "--temperature", "0"), "temperature 0.0 has no distribution."),
        (("run", "x", "--top", "0"), "top = 0: there are 5022 tokens."),
        (("run", "x", "--out", "nowhere/x.csv"), "there is no folder nowhere.\n  try: mkdir -p nowhere"),
        (("run", "x", "--out", "x.xlsx"), '".xlsx" is not a format'),
        (("run", "x", "--device", "cuda"), 'device "cuda" is not on this machine.'),
        (("params", "--model", "pockett"), "try: pocket"),
    ],
)  # fmt: skip
def test_bad_input_is_answered_in_words(words, stated, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with nothing_written(tmp_path):
        assert stated in refused(*words)


def test_wrong_usage_exits_2():
    for words in (("run",), ("run", "x", "--nonsense"), ("run", "x", "--format", "xml"), ("fly",)):
        assert ffnprobe(*words).exit_code == 2


def test_a_folder_that_cannot_be_written_is_said_before_the_work(tmp_path):
    if os.geteuid() == 0:
        (tmp_path / "file").write_text("")
        assert "there is no folder" in refused("run", "x", "--out", tmp_path / "file" / "x.csv")
        return
    tmp_path.chmod(0o500)
    assert "cannot be written to" in refused("run", "x", "--out", tmp_path / "x.csv")


def test_debug_shows_the_traceback():
    result = ffnprobe("run", "", "--debug")
    assert isinstance(result.exception, fp.FfnProbeError)


@pytest.mark.parametrize("code", ["import ffnprobe", "import ffnprobe.cli.main"])
def test_importing_loads_nothing_heavy(code):
    check = f"import sys; {code}; print([m for m in {HEAVY!r} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_help_loads_nothing_heavy():
    commands = [
        info.name
        for info in __import__("ffnprobe.cli.main", fromlist=["app"]).app.registered_commands
    ]
    check = (
        "import sys\nfrom ffnprobe.cli.main import app\n"
        f"for words in [[], *[[name] for name in {commands!r}]]:\n"
        "    try:\n        app([*words, '--help'])\n    except SystemExit as end:\n        assert not end.code\n"
        f"print('heavy', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines()[-1] == "heavy []"
    assert "Usage" in found.stdout


RUNNING = [
    ["run", JORDAN],
    ["lens", JORDAN],
    ["explain", JORDAN],
    ["attribute", JORDAN],
    ["ablate", JORDAN, " basketball"],
    ["paths", JORDAN, " basketball"],
    ["stages", JORDAN],
    ["steer", JORDAN, "--set", "L3N12=4", "--generate", "2"],
]
UNNEEDED = ("transformer_lens", "transformers", "plotly", "datasets", "scipy", "huggingface_hub", "dash", "ray")  # fmt: skip


def test_commands_that_run_a_prompt_load_no_library_they_do_not_need():
    check = (
        "import sys\nfrom ffnprobe.cli.main import app\n"
        f"for words in {RUNNING!r}:\n"
        "    app([*words, '--model', 'pocket'], standalone_mode=False)\n"
        f"    print('heavy', words[0], [m for m in {UNNEEDED!r} if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    heavy = [line for line in found.stdout.splitlines() if line.startswith("heavy ")]
    assert heavy == [f"heavy {words[0]} []" for words in RUNNING]


def test_a_reader_that_goes_away_is_no_crash(tiny_folder):
    """More is printed than a pipe holds, and nobody reads it."""
    line = f'"{sys.executable}" -m ffnprobe run -m "{tiny_folder}" -k 301 --format json the | true; echo "${{PIPESTATUS[0]}}"'
    found = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert found.stdout.strip() in ("0", "1")
    assert "Traceback" not in found.stderr
