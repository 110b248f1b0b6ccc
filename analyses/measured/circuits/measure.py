"""One pair's circuits, tested: what every ranking recovers at every size, and which neurons are kept."""

from typing import Any

import pandas as pd

import ffnprobe as fp
from analyses.measured.circuits.pairs import Pair
from ffnprobe.circuits.recovery import find_enough, measure_area

SIZES = (5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
RULES = ("relp", "gradient")
SIGNS = ("both", "toward")
KEEP = 100
NEVER = float("inf")


def measure(pair: Pair, contrast: fp.Contrast, *, seed: int) -> list[dict[str, Any]]:
    """Return the rows of a pair: one for each sign and ranking."""
    rows = []
    for sign in SIGNS:
        found = fp.circuit(
            contrast.trace.model, pair.prompt, pair.answer, versus=pair.rival, contrast=contrast,
            keep=KEEP, sign=sign,
        )  # fmt: skip
        tested = fp.check_circuit(found, sizes=SIZES, rules=RULES, seed=seed)
        for ranking, own in tested.rows.groupby("ranking", sort=False):
            rows.append(
                {
                    "kind": pair.kind, "prompt": pair.prompt, "answer": pair.answer, "sign": sign,
                    "ranking": ranking, "worth": tested.all_neurons - tested.no_neurons,
                    "recovered": own.recovered.tolist(), "gone": own.gone.tolist(),
                    "remainder": found.remainder,
                    "kept": [str(name) for name, _ in found.kept] if ranking == "influence" else [],
                }
            )  # fmt: skip
    return rows


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Put the medians over pairs side by side: sizes for 80 %, shares at the size kept, areas."""
    at = SIZES.index(KEEP)
    table = []
    for (sign, ranking), own in rows.groupby(["sign", "ranking"], sort=False):
        line: dict[str, object] = {"sign": sign, "ranking": ranking, "pairs": len(own)}
        for share in ("recovered", "gone"):
            sizes = own[share].map(lambda shares: find_enough(SIZES, shares) or NEVER)
            line[f"{share}_size"] = sizes.median()
            line[f"{share}_at_{KEEP}"] = own[share].map(lambda shares: shares[at]).median()
            line[f"{share}_area"] = own[share].map(lambda s: measure_area(SIZES, s)).median()
        line["distance"] = own.recovered.map(lambda shares: abs(1 - shares[at])).median()
        table.append(line)
    return pd.DataFrame(table)


def count_beaten(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Count, for each other ranking, the pairs where the circuit has the larger area."""
    table = []
    for sign, own in rows.groupby("sign", sort=False):
        areas = own.assign(area=own[by].map(lambda shares: measure_area(SIZES, shares)))
        wide = areas.pivot_table(index="prompt", columns="ranking", values="area")
        for other in wide.columns.drop("influence"):
            beaten = int((wide["influence"] > wide[other]).sum())
            table.append({"sign": sign, "ranking": other, "beaten": beaten, "pairs": len(wide)})
    return pd.DataFrame(table)


def share_neurons(rows: pd.DataFrame) -> pd.DataFrame:
    """Count in how many pairs' circuits each neuron is, at whatever position."""
    kept = rows[rows.ranking == "influence"]
    table = []
    for sign, own in kept.groupby("sign", sort=False):
        counts = own.kept.map(lambda names: sorted(set(names))).explode().value_counts()
        for name, count in counts.items():
            table.append({"sign": sign, "name": name, "pairs": int(count), "of": len(own)})
    return pd.DataFrame(table)
