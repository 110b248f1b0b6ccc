"""Commands compute with as many threads as pay; the library leaves the setting alone."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.cli.invocation import choose_threads, read_threads
from ffnprobe.errors import OptionRefused
from tests.cli.runner import ffnprobe, refused
from tests.conftest import JORDAN


@pytest.mark.parametrize(
    ("typed", "variable", "expected"),
    [((), "", 1), (("--threads", "2"), "", 2), ((), "3", 3), (("--threads", "2"), "3", 2)],
)
def test_pocket_runs_with_one_thread_unless_told(typed, variable, expected, monkeypatch):
    monkeypatch.setenv("FFNPROBE_THREADS", variable)
    torch.set_num_threads(2)
    assert ffnprobe("run", JORDAN, "--model", "pocket", *typed).exit_code == 0
    assert torch.get_num_threads() == expected


def test_threads_by_size():
    assert choose_threads(4_000_000, 8) == 1
    assert choose_threads(135_000_000, 8) == 4
    assert choose_threads(135_000_000, 2) == 2
    assert choose_threads(2_000_000_000, 16) == 16


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_what_is_not_a_number_of_threads_is_refused(text, monkeypatch):
    monkeypatch.setenv("FFNPROBE_THREADS", text)
    with pytest.raises(OptionRefused, match=r"FFNPROBE_THREADS is .* not a number of threads"):
        read_threads(None)
    assert read_threads(4) == 4
    assert '--threads is "0"' in refused("run", JORDAN, "--threads", "0", "--model", "pocket")


def test_python_keeps_its_own_setting(pocket):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fp.explain(pocket, JORDAN, " basketball", top=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
