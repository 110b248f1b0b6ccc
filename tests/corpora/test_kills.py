"""Two writers and SIGKILL: the script `kills.py`, for some rounds (FFNPROBE_KILLS says how many)."""

import os
import subprocess
import sys
from pathlib import Path

ROUNDS = int(os.environ.get("FFNPROBE_KILLS", "2"))


def test_two_writers_killed_at_random_moments_leave_one_scan(tiny_folder, tmp_path):
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "tests.corpora.kills", tiny_folder, tmp_path, ROUNDS]
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, cwd=root, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == ROUNDS + 1
    assert "Traceback" not in done.stderr
