"""Draw the pictures of the README and of docs/concepts.md, from pocket, as a user would.

    python docs/scripts/pictures.py

The report is the page that the README's own command writes, photographed in Chromium (playwright); the
picture's text chunk `shows` names the neurons on it. The figures are drawn by kaleido. Tests hold the
stored pictures to what pocket says today.
"""

import io
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import plotly.graph_objects as go
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import ffnprobe as fp

FOLDER = Path(__file__).parents[1] / "pictures"
PROMPT, ANSWER = "Michael Jordan plays the sport of", " basketball"
NEURON = "L1N505"  # at " Jordan"
WIDTH, SHARPNESS, COLOURS, GAP = 1280, 2, 32, 16
EDGE = 4  # around a part, so that its border is whole
# A vector for each of 5,376 neurons would make a large file of a small picture.
CROWDED = ("effect",)


def draw_figures() -> dict[str, go.Figure]:
    """Draw one figure for each word: question, answer, push, effect."""
    model = fp.load("pocket", device="cpu")
    trace = fp.run(model, PROMPT)
    pushes = fp.attribute(trace, ANSWER)
    effects = fp.ablate(trace, ANSWER, replace="mean", convention="centred")
    return {
        "question": fp.plot(fp.drivers(trace, NEURON, position=2)),
        "answer": fp.plot(fp.read(model, NEURON)),
        "push": fp.plot(pushes, "account"),
        "effect": fp.plot(effects, "pushes", pushes=pushes),
    }


def find_command() -> list[str]:
    """Return the README's command that writes a page, as words."""
    lines = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").splitlines()
    return shlex.split(next(line for line in lines if line.startswith("ffnprobe explain")))


def photograph_report() -> bytes:
    """Photograph the page of the README's command: the verdict, the table, the first cards, as png."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        _, *words = find_command()
        command = [sys.executable, "-m", "ffnprobe", *words, "--quiet"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        page_file = Path(folder) / words[-1]
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        view = {"width": WIDTH, "height": 900}
        page = browser.new_page(viewport=view, device_scale_factor=SHARPNESS)
        page.goto(page_file.as_uri(), timeout=120_000)
        page.add_style_tag(content=".scroll { max-height: none !important }")  # every row
        page.wait_for_selector(".plot > .plot-container")
        find = "([one, edge]) => document.querySelector(one).getBoundingClientRect()[edge]"
        edges = {
            "h1": ".prompt + p",
            ".scroll:has(#table-1)": ".scroll:has(#table-1)",
            ".cards": "article:nth-child(2)",
        }
        parts = [
            (
                page.evaluate(find, [first, "top"]) - EDGE,
                page.evaluate(find, [last, "bottom"]) + EDGE,
            )
            for first, last in edges.items()
        ]
        shots = [
            page.screenshot(
                full_page=True, clip={"x": 0, "y": top, "width": WIDTH, "height": bottom - top}
            )
            for top, bottom in parts
        ]
        names = page.locator("#table-1 tbody tr > :first-child").all_inner_texts()
        browser.close()
    return _stack([Image.open(io.BytesIO(shot)) for shot in shots], shows=" ".join(names))


def _stack(images: list[Image.Image], gap: int = GAP * SHARPNESS, shows: str = "") -> bytes:
    """Put pictures below each other, in few colours: text stays crisp and the file small."""
    height = sum(image.height + gap for image in images)
    whole = Image.new("RGB", (images[0].width, height), "white")
    top = 0
    for image in images:
        whole.paste(image, (0, top))
        top += image.height + gap
    data = io.BytesIO()
    said = PngInfo()
    if shows:
        said.add_text("shows", shows)
    whole.quantize(COLOURS).save(data, "png", optimize=True, pnginfo=said)
    return data.getvalue()


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    for name, figure in draw_figures().items():
        if name in CROWDED:
            drawn = Image.open(io.BytesIO(figure.to_image(format="png", scale=SHARPNESS)))
            (FOLDER / f"{name}.png").write_bytes(_stack([drawn], gap=0))
        else:
            (FOLDER / f"{name}.svg").write_bytes(figure.to_image(format="svg"))
    (FOLDER / "report.png").write_bytes(photograph_report())


if __name__ == "__main__":
    main()
