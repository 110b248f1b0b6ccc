"""What saving a page goes through: few files, and none of rooms that have nothing to do with it."""

import json
import subprocess
import sys

from tests.conftest import JORDAN

SCRIPT = """
import json, sys
from pathlib import Path
import ffnprobe as fp

root, seen = str(Path(fp.__file__).parent), set()

def note(frame, event, _):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(root) and frame.f_code.co_name != "<module>":
        seen.add(file)

model = fp.load("pocket")
fp.save(fp.explain(model, "Tiger Woods plays the sport of", " golf", top=3), sys.argv[2])  # imports
found = fp.explain(model, sys.argv[1], " basketball", top=3)
sys.setprofile(note)
fp.save(found, sys.argv[2])
sys.setprofile(None)
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("ffnprobe.")}
print(json.dumps([len(seen), sorted(rooms)]))
"""


def test_saving_an_explanation_goes_through_few_files(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, JORDAN, str(tmp_path / "x.html")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    files, rooms = json.loads(done.stdout)
    assert 20 < files <= 60
    assert {"evidence", "documents", "views"} <= set(rooms)
    assert not {"editing", "circuits", "serving", "cli", "lab"} & set(rooms)
