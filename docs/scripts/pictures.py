"""Draw the pictures of the README and of docs/concepts.md, from pocket, as a user would.

    python docs/scripts/pictures.py

The report is photographed in Chromium (playwright), the figures are drawn by kaleido. A test holds
the stored figures to what pocket says today.
"""

import io
import shutil
import tempfile
from pathlib import Path

import plotly.graph_objects as go
from PIL import Image

import ffnprobe as fp

FOLDER = Path(__file__).parents[1] / "pictures"
PROMPT, ANSWER = "Michael Jordan plays the sport of", " basketball"
WIDTH, SHARPNESS, COLOURS, GAP = 1280, 2, 64, 16
# A vector for each of 4,608 neurons would make a large file of a small picture.
CROWDED = ("effect",)


def draw_figures() -> dict[str, go.Figure]:
    """Draw one figure for each word: question, answer, push, effect."""
    model = fp.load("pocket", device="cpu")
    trace = fp.run(model, PROMPT)
    pushes = fp.attribute(trace, ANSWER)
    effects = fp.ablate(trace, ANSWER, replace="mean", convention="centred")
    return {
        "question": fp.plot(fp.drivers(trace, "L0N378")),
        "answer": fp.plot(fp.read(model, "L4N26")),
        "push": fp.plot(pushes, "account"),
        "effect": fp.plot(effects, "pushes", pushes=pushes),
    }


def photograph_report() -> bytes:
    """Photograph the report: its opening, and the evidence below it, as png."""
    from playwright.sync_api import sync_playwright

    explanation = fp.explain(fp.load("pocket", device="cpu"), PROMPT, ANSWER, top=8)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_file = Path(folder) / "jordan.html"
        fp.save(explanation, page_file)
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        view = {"width": WIDTH, "height": 900}
        page = browser.new_page(viewport=view, device_scale_factor=SHARPNESS)
        page.goto(page_file.as_uri())
        page.wait_for_selector(".plot > .plot-container")
        find = "([one, edge]) => document.querySelector(one).getBoundingClientRect()[edge]"
        table = "section:has(#evidence)"
        parts = [
            (0.0, page.evaluate(find, [".prompt + p", "bottom"])),
            (
                page.evaluate(find, [table, "top"]),
                page.evaluate(find, [f"{table} .scroll", "bottom"]),
            ),
        ]
        shots = [
            page.screenshot(
                full_page=True, clip={"x": 0, "y": top, "width": WIDTH, "height": bottom - top}
            )
            for top, bottom in parts
        ]
        browser.close()
    return _stack([Image.open(io.BytesIO(shot)) for shot in shots])


def _stack(images: list[Image.Image], gap: int = GAP * SHARPNESS) -> bytes:
    """Put pictures below each other, in few colours: text stays crisp and the file small."""
    height = sum(image.height + gap for image in images)
    whole = Image.new("RGB", (images[0].width, height), "white")
    top = 0
    for image in images:
        whole.paste(image, (0, top))
        top += image.height + gap
    data = io.BytesIO()
    whole.quantize(COLOURS).save(data, "png", optimize=True)
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
