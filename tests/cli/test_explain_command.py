"""`ffnprobe explain`: each part as soon as it is known, and what was removed."""

import re

import ffnprobe as fp
from tests.cli.runner import ffnprobe
from tests.conftest import JORDAN


def test_explain_prints_each_part_as_it_is_known(pocket, monkeypatch):
    """The text is the same whether it comes in steps or at once, and what is known comes first."""
    from ffnprobe.views.terminal import explanations

    steps = list(fp.explain_stepwise(pocket, JORDAN, " basketball", top=2))
    printed: list[list[str]] = []
    monkeypatch.setattr(
        explanations, "print_tables", lambda tables: printed[-1].extend(map(str, tables))
    )
    monkeypatch.setattr(explanations, "print_grid", lambda title, _: printed[-1].append(title))

    def tell(found):
        for step in found:
            printed.append([])
            yield step

    assert explanations.print_as_known(tell(steps)) is steps[-1]
    heads = [[title.split(" (")[0] for title in titles] for titles in printed]
    assert heads == [
        [],  # the verdict, which is not known yet, comes first
        ["what the model predicts next", "what the answer loses without an MLP layer, by position"],
        ["the neurons that matter", "the strongest paths through attention", "what makes up the logit"],
        ["ablated together"],
    ]  # fmt: skip
    printed.append([])
    explanations.print_as_known(steps[-1:])
    assert printed[-1] == [title for titles in printed[:-1] for title in titles]


def test_explain_says_how_many_neurons_it_removed():
    words = ("explain", JORDAN, " basketball", "-k", "2", "--model", "pocket")
    few, every = ffnprobe(*words), ffnprobe(*words, "--exact")
    assert few.exit_code == every.exit_code == 0, few.output + every.output
    assert re.search(
        r"neurons were removed; on \d+ candidates estimate and effect correlate at", few.stderr
    )
    assert "--exact removes every neuron at the last position" in few.stderr
    assert "--exact" not in every.stderr
    for line in few.stdout.splitlines():
        if " L0N" in f" {line}" and "of" in line:
            assert line in every.stdout


def test_each_piece_s_own_numbers_are_printed_on_request():
    words = ("explain", JORDAN, " basketball golf", "-k", "2", "--no-effects", "--model", "pocket")
    plain, each = ffnprobe(*words), ffnprobe(*words, "--pieces")
    assert plain.exit_code == each.exit_code == 0, plain.output + each.output
    title = "the same neurons, piece by piece"
    assert title not in plain.stdout
    assert "--pieces also prints each one's" in plain.stderr
    assert title in each.stdout
    assert "--pieces" not in each.stderr
    one = ffnprobe(*words[:2], " basketball", *words[3:])
    assert "--pieces" not in one.stderr
