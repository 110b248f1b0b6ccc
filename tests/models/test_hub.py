"""The hub, spoken for real: first download, cache, a cut download, no answer at all."""

import os
import pty
import subprocess
import sys
import termios
from dataclasses import replace

import pytest

import ffnprobe as fp
from tests.builders import TINY, write_model
from tests.models.hub_server import serve

# In a process of its own, since the hub's library reads its settings when it is imported.
FETCH = """
import sys
from ffnprobe.errors import FfnProbeError
from ffnprobe.models.sources import find_source
try:
    print(find_source(sys.argv[1]).folder())
except FfnProbeError as error:
    sys.exit(f"error: {error}")
"""
SIZES = """
import sys
from ffnprobe.models.sources import find_config
config = find_config(sys.argv[1])[1]
print(config.layers, config.d_mlp)
"""

LENS = """
import sys
import ffnprobe as fp
from ffnprobe.errors import FfnProbeError
try:
    print(fp.use_lens(fp.load(sys.argv[1]), "gpt2-small").lens)
except FfnProbeError as error:
    sys.exit(f"error: {error}")
"""


def fetch(name, home, url, *, stderr=subprocess.PIPE, code=FETCH, **more):
    environment = os.environ | {
        "HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": "3", **more,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, name],
        env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("published"))


def test_a_model_is_downloaded_once_and_then_never_asked_for(published, tiny, tmp_path):
    with serve({"openai-community/gpt2": published}) as hub:
        terminal, screen = pty.openpty()
        termios.tcsetwinsize(screen, (24, 100))
        first = fetch("gpt2", tmp_path, hub.url, stderr=screen)
        shown = os.read(terminal, 100_000).decode()
        os.close(terminal)
        os.close(screen)
        assert fp.load(first.stdout.strip()).fingerprint == tiny.fingerprint
        assert "model.safetensors" in shown, "the download shows its progress"
        assert "100%" in shown
        assert any(path.endswith("model.safetensors") for _, path, _ in hub.requests)
        hub.requests.clear()
        second = fetch("gpt2", tmp_path, hub.url)
        assert second.stdout == first.stdout
        sizes = fetch("gpt2", tmp_path, hub.url, code=SIZES)
        assert sizes.stdout.split() == ["3", "52"]
        assert hub.requests == []


def test_what_the_tokenizer_says_of_bos_is_downloaded_too(tmp_path):
    published = write_model(tmp_path / "published")
    (published / "tokenizer_config.json").write_text('{"bos_token": null}')
    with serve({"someone/else": published}) as hub:
        answer = fetch("someone/else", tmp_path / "home", hub.url)
        assert fp.load(answer.stdout.strip()).vocab.bos is None


def test_a_cut_download_goes_on_where_it_stopped(tmp_path):
    # The hub's library counts in chunks of 10 MB, so the file must be longer than one.
    config = replace(TINY, positions=150_000)
    published = write_model(tmp_path / "long", config)
    with serve({"someone/long-gpt2": published}) as hub:
        hub.cut_after = 12_000_000
        answer = fetch("someone/long-gpt2", tmp_path / "home", hub.url)
        assert fp.load(answer.stdout.strip()).fingerprint == fp.load(published).fingerprint
        starts = [
            int(wanted.removeprefix("bytes=").split("-")[0])
            for _, path, wanted in hub.requests
            if wanted and path.endswith("model.safetensors")
        ]
        assert starts
        assert min(starts) >= 10_000_000


def test_a_repository_that_is_not_there_is_named(published, tmp_path):
    with serve({"openai-community/gpt2": published}) as hub:
        answer = fetch("someone/else", tmp_path, hub.url)
        assert answer.returncode == 1
        assert "the hub has no repository someone/else, or it is private." in answer.stderr


def test_a_hub_that_does_not_answer_names_the_two_ways_on(tmp_path):
    answer = fetch("gpt2", tmp_path, "http://127.0.0.1:9")
    assert answer.returncode == 1
    assert (
        "the hub did not deliver openai-community/gpt2 and it is not in the cache" in answer.stderr
    )
    assert "--model FOLDER with the model's files, or --model pocket" in answer.stderr
    assert "Retry" not in answer.stderr, "no endless retries"


def test_offline_mode_is_answered_at_once(tmp_path):
    answer = fetch("gpt2-medium", tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE="1")
    assert "the hub did not deliver openai-community/gpt2-medium" in answer.stderr


def test_a_published_lens_is_downloaded_by_its_name(published, tiny, tmp_path):
    file = tmp_path / "lens/gpt2-small/jlens/Salesforce-wikitext/gpt2_jacobian_lens.pt"
    file.parent.mkdir(parents=True)
    fp.fit_lens(tiny, {"one": "the cat sat on the mat " * 2}, skip=2).publish(file)
    with serve({"neuronpedia/jacobian-lens": tmp_path / "lens"}) as hub:
        answer = fetch(str(published), tmp_path / "home", hub.url, code=LENS)
        assert answer.stderr == ""
        assert " over 1 passage\n" in answer.stdout
    gone = fetch(str(published), tmp_path / "other", "http://127.0.0.1:9", code=LENS)
    assert "the hub did not deliver neuronpedia/jacobian-lens" in gone.stderr
    assert "try: a .pt file, or on-demand" in gone.stderr
