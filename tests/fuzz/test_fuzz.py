"""Hundreds of odd command lines: no traceback, nothing left behind, none over its time.

    FFNPROBE_FUZZ=5000 FFNPROBE_FUZZ_SEED=7 pytest tests/fuzz

The cases are drawn with a fixed seed and run in this process, the model loaded once.
"""

import os
import resource
import shutil
import signal
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from werkzeug.serving import BaseWSGIServer

from ffnprobe.models import loading
from tests.cli.runner import ffnprobe
from tests.fuzz.cases import draw_cases
from tests.fuzz.odd_files import write_files

CASES = int(os.environ.get("FFNPROBE_FUZZ", "40"))
SEED = int(os.environ.get("FFNPROBE_FUZZ_SEED", "0"))
SECONDS, WAIT = 20, 120
MEMORY = 3 * 2**30


class TooLong(BaseException):
    """A case did not end in its time."""


@contextmanager
def limits():
    """End what takes too long, and refuse it memory without end."""

    def stop(number, frame):
        raise TooLong

    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    # Of the processor, since others may use it too; and of the clock, since a pipe uses none.
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(WAIT)
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def seen(folder):
    """List every file below a folder with its size and time, links not followed."""
    return {
        path: (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
        if not path.is_dir()
    }


def judge(case, result, made):
    """Say what is wrong with how a command ended, or nothing."""
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        if isinstance(error, TooLong):
            return "took too long"
        last = traceback.extract_tb(result.exc_info[2])[-1]
        return f"{type(error).__name__}: {str(error)[:150]} ({last.filename}:{last.lineno})"
    if result.exit_code not in (0, 1, 2):
        return f"exit code {result.exit_code}"
    if "Traceback" in result.stderr:
        return "a traceback"
    if "not enough memory" in result.stderr:
        return f"memory: {result.stderr[-200:]}"
    if result.exit_code == 1 and "error: " not in result.stderr:
        return f"no error: {result.stderr[-200:]!r}"
    if result.exit_code == 1:
        stated = result.stderr[result.stderr.index("error: ") :]
        if len(stated.strip().split("\n")) > 3 or len(stated) > 1500:
            return f"an error of {len(stated)} characters: {stated[:200]!r}"
    if result.exit_code and made:
        return f"left behind {sorted(made)}"
    if any(Path(path).name.startswith(".") for path in made):
        return f"left behind {sorted(made)}"
    return None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_odd_command_lines_end_in_words(tiny, tiny_folder, tmp_path, monkeypatch):
    folder = tmp_path / "files"
    folder.mkdir()
    files = write_files(folder, tiny)
    kept, threads = {str(tiny_folder): tiny}, torch.get_num_threads()
    torch.set_num_threads(1)
    load = loading.load
    monkeypatch.setattr(
        loading, "load", lambda name, **asked: kept.get(name) or load(name, **asked)
    )
    monkeypatch.setattr(BaseWSGIServer, "serve_forever", lambda *things, **named: None)
    monkeypatch.setattr("uvicorn.Server.run", lambda *things, **named: None)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    before, wrong, slowest = seen(folder), [], (0.0, "")
    for number, case in enumerate(draw_cases(CASES, SEED, folder, files, tiny_folder)):
        place = tmp_path / "place"
        place.mkdir()
        monkeypatch.chdir(place)
        began = time.monotonic()
        try:
            with limits():
                result = ffnprobe(*case.words, stdin=case.stdin)
        except TooLong:
            said = "took too long"
        else:
            said = judge(case, result, os.listdir(place))
        slowest = max(slowest, (time.monotonic() - began, str(case)))
        if said is None and seen(folder) != before:
            said = "changed what it was given"
            before = seen(folder)
        if said is not None:
            wrong.append(f"{number}: {case}\n    {said}")
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(place)
    torch.set_num_threads(threads)
    print(f"{CASES} cases; the slowest took {slowest[0]:.1f} s: {slowest[1]}")
    assert not os.listdir(tmp_path / "temporary")
    assert not wrong, f"{len(wrong)} of {CASES}\n" + "\n".join(wrong)
