"""Ctrl-C at any moment of a command, from our first line on: one line, and exit code 130."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOMENTS = 40
# What Python does before our first line (site, encodings, the script's own lines) is not ours to mend.
SAY_BEGUN = """
import os, sys
class Begun:
    def find_spec(self, name, path=None, target=None):
        if name == "ffnprobe.cli":
            os.write(2, b"begun\\n")
sys.meta_path.insert(0, Begun())
"""
# When modules are cleared, Python has already taken its handlers of signals away.
INTERRUPT_AT_THE_END = """
class Late:
    def __del__(self, kill=os.kill, process=os.getpid(), write=os.write):
        kill(process, 2)
        write(2, b"sent\\n")
sys.late = Late()
"""
# What pip writes for an entry point.
SCRIPT = "import sys\nfrom ffnprobe.__main__ import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
# Two commands that lose the exception as a library's code does.
LOSING = """
import signal, time
from ffnprobe.cli.failures import take_interrupts
take_interrupts()
from ffnprobe.cli.command import command
from ffnprobe.cli.main import main
class Destroyed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
@command
def restated(common):
    "Make an error of it."
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise RuntimeError("no shape") from None
@command
def destroyed(common):
    "Lose it in a destructor."
    Destroyed()
    time.sleep(60)
main()
"""


@pytest.fixture(params=["module", "script"])
def command(request, tmp_path):
    """The words that start ffnprobe, and an environment in which it says when it has begun."""
    (tmp_path / "sitecustomize.py").write_text(SAY_BEGUN)
    (tmp_path / "ffnprobe").write_text(SCRIPT)
    words = ["-m", "ffnprobe"] if request.param == "module" else [str(tmp_path / "ffnprobe")]
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    return [sys.executable, *words], os.environ | {"PYTHONPATH": paths, "FFNPROBE_MODEL": "pocket"}


def start(command, *words, **named):
    begin, environment = command
    started = subprocess.Popen(
        [*begin, *words], env=environment, cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **named,
    )  # fmt: skip
    assert started.stderr.readline() == "begun\n"
    return started


def test_it_ends_in_one_line_at_every_moment_of_the_first_second(command):
    ended = []
    for number in range(MOMENTS):
        started = start(command, "run", "Michael Jordan plays the sport of")
        time.sleep(number / MOMENTS)
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=60)
        assert "Traceback" not in said, said
        assert "Exception" not in said, said
        ended.append(started.returncode)
        if ended[-1] != 0:  # else it was done before
            assert ended[-1] == 130, (number, said)
            assert said.rstrip("\n").rpartition("\n")[2].startswith("interrupted: "), (number, said)
    assert ended.count(130) >= MOMENTS / 4


def test_who_has_it_ignored_is_not_interrupted(command):
    began = start(command, "read", "L0N1", preexec_fn=ignore)
    began.send_signal(signal.SIGINT)
    _, said = began.communicate(timeout=60)
    assert began.returncode == 0, said


def test_a_command_that_is_done_is_not_killed_while_python_ends(command, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SAY_BEGUN + INTERRUPT_AT_THE_END)
    ended = start(command, "--version")
    printed, said = ended.communicate(timeout=60)
    assert (ended.returncode, said) == (0, "sent\n")
    assert printed.startswith("ffnprobe ")


@pytest.mark.parametrize(
    ("loses", "says"),
    [("restated", "run the same command again."), ("destroyed", "nothing was written.")],
)
def test_what_compiled_code_loses_ends_the_command_all_the_same(loses, says):
    ended = subprocess.run(
        [sys.executable, "-c", LOSING, loses], capture_output=True, text=True, cwd=ROOT, timeout=50
    )
    assert (ended.returncode, ended.stderr) == (130, f"interrupted: {says}\n")


def ignore():
    """Do as `nohup` and a shell's `&` do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
