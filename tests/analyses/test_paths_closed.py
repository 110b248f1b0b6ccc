"""Paths close for every head on pocket's own facts; the script says the worst error it found."""

from dataclasses import replace

import pytest

import ffnprobe as fp
from analyses.measured import paths_closed
from ffnprobe.errors import AccountNotClosed


@pytest.fixture(scope="module")
def script():
    return paths_closed


def test_the_worst_error_is_printed_and_small(script, pocket, capsys):
    seen = []

    def measure(trace, own=script.measure):
        seen.append(own(trace))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "measure", measure)
        script.main(["pocket", "--prompts", "30"])
    said = capsys.readouterr().out
    heads = pocket.config.layers * pocket.config.heads
    assert f"pocket: worst errors over {heads} heads of 30 prompts, in logits" in said
    assert len({row["prompt"] for row in seen}) == 30
    for row in seen:
        assert row["the largest push of a head"] > 0.1
        errors = [abs(v) for k, v in row.items() if k.startswith(("a head", "the owners"))]
        assert len(errors) == 3
        assert max(errors) < 1e-4, row


def test_what_does_not_close_is_an_error(script, jordan):
    broken = replace(jordan, patterns=jordan.patterns.roll(1, dims=1))
    with pytest.raises(AccountNotClosed, match=r"the push of L\dH\d is"):
        script.measure(broken)
    assert fp.paths(jordan, " basketball").remainder < 1e-4
