"""Write the tables of docs/evidence.md from the stores of analyses/measured/evidence_compared.py.

    python docs/scripts/evidence_tables.py "SmolLM2 135M=smollm2.jsonl" "Gemma 3 270M=gemma3-270m.jsonl"

For each model: the share of facts whose answer is no longer first without the first k neurons of each
ranking, what answers lose, and in how many facts contrast with paths and gradient × difference differ.
The text around the tables is written by hand: read it again after this.
"""

import json
import sys
from pathlib import Path

import pandas as pd

PAGE = Path(__file__).parents[1] / "evidence.md"
BEGIN, END = "<!-- tables: docs/scripts/evidence_tables.py -->", "<!-- end of tables -->"
SIZES = (1, 5, 10, 20, 50)
OURS, GRADIENT = "contrast with paths", "gradient × difference"
# Specific: contrast answers lose less than a tenth of what the fact's answer loses.
A_TENTH = 0.1


def write_model(name: str, rows: pd.DataFrame) -> str:
    """Write one model's tables."""
    means = rows.groupby(["method", "k"], sort=False).mean(numeric_only=True)
    facts = rows.prompt.nunique()
    # A machine that is busy at times makes the mean of times worthless.
    means["seconds"] = rows.groupby(["method", "k"], sort=False).seconds.median()
    lines = [f"**{name}**, {facts} facts. Set to contrast means:", "", *table(means, "contrast")]
    lines += ["", f"**{name}**, the usual replacement:", "", *table(means, "usual"), ""]
    lines += [*compare(rows, facts), ""]
    return "\n".join(lines)


def table(means: pd.DataFrame, removed: str) -> list[str]:
    """Table each method: flips at every k, and at k = 20 what is lost here and there."""
    sizes = " | ".join(f"k = {k}" for k in SIZES)
    lines = [
        f"| no longer first | {sizes} | there, k = 20 | fall, k = 20 | fall there | most, if specific | seconds |",
        "|---" * (len(SIZES) + 6) + "|",
    ]
    for method in means.index.unique("method"):
        own = means.loc[method]
        flips = " | ".join(f"{own.loc[k, f'{removed}_flipped']:.0%}" for k in SIZES)
        at = own.loc[20]
        specific = own[own[f"{removed}_fall_there"] < A_TENTH * own[f"{removed}_fall"]]
        best = f"{specific[f'{removed}_flipped'].max():.0%}" if len(specific) else "–"
        lines.append(
            f"| {method} | {flips} | {at[f'{removed}_flipped_there']:.0%} | "
            f"{at[f'{removed}_fall']:.2f} | {at[f'{removed}_fall_there']:.2f} | {best} | "
            f"{at.seconds:.1f} |"
        )
    return lines


def compare(rows: pd.DataFrame, facts: int) -> list[str]:
    """Say in how many facts one of the two best methods flips the answer and the other does not."""
    flips = rows.pivot_table(
        index="prompt", columns=["method", "k"], values="contrast_flipped", aggfunc="first"
    ).astype(bool)
    said = []
    for k in (10, 20):
        ours, theirs = flips[OURS, k], flips[GRADIENT, k]
        said.append(
            f"at k = {k}, only by {OURS} {int((ours & ~theirs).sum())}, "
            f"only by {GRADIENT} {int((theirs & ~ours).sum())}"
        )
    return [f"Of {facts} facts flipped {'; '.join(said)}."]


def main(given: list[str]) -> None:
    parts = []
    for one in given:
        name, _, store = one.partition("=")
        rows = [json.loads(line) for line in Path(store).read_text(encoding="utf-8").splitlines()]
        parts.append(write_model(name, pd.DataFrame(rows)))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(
        "\n".join([before + BEGIN, "\n".join(parts).rstrip(), END + after]), encoding="utf-8"
    )
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
