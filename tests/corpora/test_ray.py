"""On a real, small Ray cluster of this machine: the same bytes, whatever happens to a worker."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import ffnprobe as fp
from ffnprobe.corpora import clusters
from ffnprobe.corpora.scans import SCAN
from ffnprobe.errors import OptionRefused
from tests.corpora import kills, ray_kills
from tests.corpora.conftest import OPTIONS, bytes_of

pytestmark = pytest.mark.ray
# How often two drivers are killed.
ROUNDS = int(os.environ.get("FFNPROBE_RAY_KILLS", "2"))
ROOT = Path(kills.__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Two CPUs' worth of Ray, started once; what joins it leaves it running."""
    ray = pytest.importorskip("ray", reason="needs Ray: pip install ffnprobe[ray]")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray
    ray.shutdown()


class Killed(BaseException):
    """Stands in for the end of the process."""


def test_begun_here_and_ended_by_two_workers_one_of_them_killed_it_has_the_same_bytes(
    tiny, speeches, whole, tmp_path, monkeypatch, cluster
):
    def stop(tokens, share):
        if tokens:
            raise Killed

    with pytest.raises(Killed):
        fp.scan(tiny, speeches, store=tmp_path / "scan", progress=stop, **OPTIONS)
    pools, killed = [], []
    submit = clusters.WorkerPool.submit

    def remember(pool, *things):
        pools.append(pool)
        return submit(pool, *things)

    monkeypatch.setattr(clusters.WorkerPool, "submit", remember)

    def kill_one(tokens, share):
        if pools and not killed:
            killed.append(cluster.get(submit(pools[0], 1, process_of)))
            os.kill(killed[0], signal.SIGKILL)

    options = OPTIONS | {"engine": "ray", "workers": 2}
    fp.scan(tiny, speeches, store=tmp_path / "scan", progress=kill_one, **options)
    assert killed
    assert bytes_of(tmp_path / "scan") == bytes_of(whole)


def process_of(model):
    return os.getpid()


def test_a_survey_on_ray_is_the_survey(tiny_folder):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # A model of its own: what others have measured of a shared one was rounded with their threads.
    model = fp.load(tiny_folder, device="cpu")
    asked = {"layers": "1-2", "top": 3, "thresholds": fp.Thresholds(kurtosis=2.8)}
    counts = []
    here = fp.survey(model, **asked)
    there = fp.survey(
        model, **asked, engine="ray", workers=2, progress=lambda *done: counts.append(done)
    )
    torch.set_num_threads(threads)
    assert there.table.equals(here.table)
    assert there.provenance == here.provenance
    assert len(set(here.table.kind)) > 1
    assert counts == [(52, 104), (104, 104)]


def test_more_workers_than_fit_are_refused(tiny):
    with pytest.raises(
        OptionRefused, match="3 workers of 1 CPU do not fit: the cluster has room for 2"
    ):
        fp.scan(tiny, {"a": "the cat"}, engine="ray", workers=3)


def test_an_address_that_does_not_answer_is_named_in_seconds(tiny, cluster, monkeypatch):
    monkeypatch.setattr(cluster, "is_initialized", lambda: False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    began = time.monotonic()
    with pytest.raises(OptionRefused) as refusal:
        fp.scan(tiny, {"a": "the cat"}, engine="ray", address=address)
    assert refusal.value.what == f"no Ray cluster answers at {address}: Connection refused."
    assert time.monotonic() - began < 30


WRITER = """
import sys, torch
import ffnprobe as fp
from tests.corpora.kills import CORPORA, OPTIONS
torch.set_num_threads(1)
model = fp.load(sys.argv[1], device="cpu")
print("begun", flush=True)
options = OPTIONS | {"engine": "ray", "address": sys.argv[4]}
try:
    fp.scan(model, CORPORA[int(sys.argv[2])], store=sys.argv[3], **options)
except fp.FfnProbeError as error:
    print(error.what, flush=True)
    sys.exit(1)
"""


def test_two_drivers_killed_leave_one_scan(tiny, tiny_folder, tmp_path, cluster):
    """With workers of their own, as a user has them; killed once the store is begun."""
    whole = []
    for number, corpus in enumerate(kills.CORPORA):
        fp.scan(tiny, corpus, store=tmp_path / f"whole{number}", **kills.OPTIONS)
        whole.append(bytes_of(tmp_path / f"whole{number}"))
    address = cluster.get_runtime_context().gcs_address
    drawn, store = random.Random(0), tmp_path / "store"
    words = [[sys.executable, "-c", WRITER, tiny_folder, each, store, address] for each in (0, 1)]
    writers = [
        subprocess.Popen(list(map(str, line)), stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for line in words
    ]
    for writer in writers:
        assert writer.stdout.readline() == "begun\n"
    until = time.monotonic() + 120
    while not (store / f"{SCAN}.safetensors").exists() and time.monotonic() < until:
        time.sleep(0.02)
    for writer in writers:
        time.sleep(drawn.uniform(0, 0.3))
        writer.kill()
    said = [writer.communicate()[0] for writer in writers]
    codes = [writer.returncode for writer in writers]
    assert set(codes) <= {0, 1, -signal.SIGKILL}, said
    assert codes != [0, 0]
    kills.settle(tiny, store, whole, drawn.sample(range(2), 2))


def test_two_drivers_killed_at_random_moments_leave_one_scan(tiny, tiny_folder, tmp_path, cluster):
    actor = ray_kills.hire(tiny)
    address = cluster.get_runtime_context().gcs_address
    words = [
        sys.executable,
        "-m",
        "tests.corpora.ray_kills",
        tiny_folder,
        tmp_path,
        ROUNDS,
        address,
    ]
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, cwd=ROOT, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    cluster.kill(actor)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == ROUNDS


def test_ray_that_cannot_start_is_said_in_a_line(tiny, cluster, monkeypatch):
    def fail(**asked):
        raise Exception(
            "The current node timed out during startup. This could be anything.\n  a stack"
        )

    monkeypatch.setattr(cluster, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "init", fail)
    monkeypatch.setattr(cluster, "shutdown", lambda: None)
    with pytest.raises(OptionRefused) as refusal:
        fp.scan(tiny, {"a": "the cat"}, engine="ray")
    assert refusal.value.what == (
        "Ray cannot start here: The current node timed out during startup. This could be anything."
    )
    assert "--engine local" in refusal.value.remedy
