"""`ablate --together`, `drivers` and `patch` print what the verbs find."""

import json

import pytest

import ffnprobe as fp
from tests.cli.runner import ffnprobe, refused

TEXT = "the cat sat on the basketball court"
OTHER = "the sat sat on the basketball court"


@pytest.fixture(scope="module")
def model(tiny_folder):
    return ("--model", tiny_folder, "--device", "cpu", "--format", "json")


def test_neurons_are_ablated_together(model, tiny_trace):
    words = ("ablate", TEXT, " the", "--together", "L1N3,L2N5", "--together", "L0")
    rows = json.loads(ffnprobe(*words, *model).stdout)["rows"]
    wanted = fp.ablate(tiny_trace, " the", together=[["L1N3", "L2N5"], ["L0"]])
    assert [row["group"] for row in rows] == ["L1N3 L2N5", "L0"]
    assert [row["effect"] for row in rows] == pytest.approx(wanted.values.tolist(), abs=1e-5)
    one = fp.ablate(tiny_trace, " the", together=["L1N3", "L2N5"])
    assert one.values[0] == pytest.approx(float(wanted.values[0]), abs=1e-5)
    assert "name them in one of the two" in refused(*words, "--neuron", "L1N3", *model)


def test_together_and_neurons_are_two_questions(tiny_trace):
    with pytest.raises(fp.FfnProbeError, match="one at a time"):
        fp.ablate(tiny_trace, " the", neurons=["L0N1"], together=["L0N2"])


def test_drivers_add_up_to_the_score(model, tiny_trace):
    found = json.loads(ffnprobe("drivers", TEXT, "L2N7", "--top", "4", *model).stdout)
    wanted = fp.drivers(tiny_trace, "L2N7")
    assert sum(row["drive"] for row in found["parts"]) == pytest.approx(wanted.score, abs=1e-3)
    assert [row["name"] for row in found["neurons"]] == wanted.top(4).name.tolist()
    assert len(found["heads"]) == 4
    drives = [abs(row["drive"]) for row in found["parts"]]
    assert drives == sorted(drives, reverse=True), "the strongest part is first"


def test_patch_carries_what_the_verb_carries(model, tiny):
    words = ("patch", TEXT, OTHER, " the", " basketball", "--top", "3")
    done = ffnprobe(*words, *model)
    source, target = fp.run(tiny, [TEXT, OTHER])
    wanted = fp.patch(source, target, " the", " basketball")
    rows = json.loads(done.stdout)["rows"]
    assert [row["name"] for row in rows] == wanted.top(3).name.tolist()
    assert "activations are means over the positions patched" in done.stderr
    last = ffnprobe(*words, "--position", "-1", *model)
    assert "activations are those at" in last.stderr
    grid = json.loads(ffnprobe("patch-layers", *words[1:5], *model).stdout)["rows"]
    assert len(grid) == 3 * len(target)
