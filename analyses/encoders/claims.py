"""Four claims about SwiGLU, each held or not over seeds.

Each compares two measures of runs with the same seed. `low` and `high` bound the mean difference
at 95 % (Student's t over seeds: it speaks of other seeds, not of other data). A comparison holds if
the whole interval is on the claim's side of zero; a claim holds if all its comparisons do.

    keeps small negatives   a larger share of activations in −0.3…−0.01 than ReLU, which has none
    steadier gradients      less unsteadiness of the gradient norm than ReLU, GELU and Swish
    more accurate           a higher accuracy than ReLU, GELU and Swish
    gathers in the bump     pre-activations fall in the bump more often than before training, and
                            more often than a normal spread of the same mean and deviation would

>>> import pandas as pd
>>> round(compare_pairs(pd.Series([0.1, 0.3, 0.2]))[0], 3)
0.2
"""

import pandas as pd
from scipy import stats

from analyses.encoders.comparison import EncoderComparison
from ffnprobe.errors import OptionRefused

SWIGLUS = ("swiglu", "swiglu_equal")
# Claim: the measure, whether more of it is what is claimed (1) or less (-1), and against whom.
_AGAINST_OTHERS = {
    "keeps small negatives": ("small_negative", 1, ("relu",)),
    "steadier gradients": ("unsteadiness", -1, ("relu", "gelu", "swish")),
    "more accurate": ("accuracy", 1, ("relu", "gelu", "swish")),
}
BUMP = "gathers in the bump"


def compare_pairs(differences: "pd.Series[float]") -> tuple[float, float, float]:
    """Return the mean of the seeds' differences and the interval around it."""
    count = len(differences)
    if count < 2:
        raise OptionRefused(f"{count} seed has no interval.", remedy="2 seeds or more")
    mean = float(differences.mean())
    reach = float(stats.t.ppf(0.975, count - 1) * stats.sem(differences))
    return mean, mean - reach, mean + reach


def weigh_claims(comparison: EncoderComparison) -> pd.DataFrame:
    """Table every comparison: claim, FFN, what it is measured against, difference, interval, held."""
    runs = comparison.table().set_index(["ffn", "seed"])
    rows = []

    def add(claim: str, ffn: str, against: str, differences: "pd.Series[float]", sign: int) -> None:
        mean, low, high = compare_pairs(differences)
        is_held = low > 0 if sign > 0 else high < 0
        rows.append({"claim": claim, "ffn": ffn, "against": against, "difference": mean,
                     "low": low, "high": high, "held": "held" if is_held else "not held"})  # fmt: skip

    for claim, (measure, sign, others) in _AGAINST_OTHERS.items():
        for ffn in SWIGLUS:
            for other in others:
                add(claim, ffn, other, runs[measure][ffn] - runs[measure][other], sign)
    for ffn in ("gelu", "swish", *SWIGLUS):
        for against in ("in_bump_at_start", "in_bump_if_normal"):
            words = {"in_bump_at_start": "before training", "in_bump_if_normal": "a normal spread"}
            add(BUMP, ffn, words[against], runs["in_bump"][ffn] - runs[against][ffn], 1)
    return pd.DataFrame(rows)


def judge_claims(tested: pd.DataFrame) -> pd.DataFrame:
    """Table each claim's verdict for each FFN: held only if every comparison held."""
    grouped = tested.groupby(["claim", "ffn"], sort=False)["held"]
    verdicts = grouped.agg(
        comparisons_held=lambda held: f"{(held == 'held').sum()} of {len(held)}",
        verdict=lambda held: "held" if (held == "held").all() else "not held",
    )
    return verdicts.reset_index()
