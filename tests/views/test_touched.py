"""How many files loading, explaining and saving go through: few, and none of rooms that have no part in it."""

import json
import subprocess
import sys

from tests.conftest import JORDAN

SCRIPT = """
import json, sys
from pathlib import Path
import ffnprobe as fp

root = str(Path(fp.__file__).parent)

def count(work):
    seen = set()
    def note(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(root) and frame.f_code.co_name != "<module>":
            seen.add(file)
    sys.setprofile(note)
    result = work()
    sys.setprofile(None)
    return result, len(seen)

model, load = count(lambda: fp.load("pocket"))
fp.save(fp.explain(model, "Tiger Woods plays the sport of", " golf", top=3), sys.argv[2])  # imports
explanation, explain = count(lambda: fp.explain(model, sys.argv[1], " basketball"))
_, save = count(lambda: fp.save(explanation, sys.argv[2]))
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("ffnprobe.")}
print(json.dumps([[load, explain, save], sorted(rooms), "sympy" in sys.modules]))
"""


def test_the_main_job_goes_through_few_files(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, JORDAN, str(tmp_path / "x.html")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    (load, explain, save), rooms, has_sympy = json.loads(done.stdout)
    assert not has_sympy  # torch loads it for some functions: a tenth of a second and more
    assert 5 < load <= 20
    assert 15 < explain <= 25
    assert 20 < save <= 60
    assert {"evidence", "documents", "views"} <= set(rooms)
    assert not {"editing", "circuits", "serving", "cli", "lab"} & set(rooms)
