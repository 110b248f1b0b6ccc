"""Figures of embeddings: tokens that are alike, words of a prompt, temperature."""

import pandas as pd
import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from ffnprobe.tracing.token_similarity import Similarity
from ffnprobe.views.theme import GREY, apply_theme, heat, line_of, plain


def plot_tokens(table: pd.DataFrame, *, note: str = "") -> go.Figure:
    """Draw the cosines of tokens with one another."""
    tokens = list(dict.fromkeys([*table["token"], *table["other"]]))
    turned = table.rename(columns={"token": "other", "other": "token"})
    cosines = pd.concat([table, turned]).pivot(index="token", columns="other", values="cosine")
    cosines = cosines.reindex(index=tokens, columns=tokens).fillna(1.0)
    figure = go.Figure(
        heat(cosines.to_numpy().tolist(), rows=tokens, columns=tokens, limit=1.0, bar="cosine")
    )
    figure.update_yaxes(autorange="reversed")
    best = table.sort_values("cosine").iloc[-1]
    counts = table["kind"].value_counts()
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    title = f"{best.token} and {best.other} are the most alike ({best.cosine:.2f}); of all pairs {listed}"
    return apply_theme(figure, title, note=note, height=520)


def plot_word_similarity(similarity: Similarity, *, note: str = "") -> go.Figure:
    """Draw the cosines between a prompt's words at the first, middle and last stage."""
    count = len(similarity.stages)
    chosen = (0, count // 2, count - 1)
    titles = [similarity.stages[stage] for stage in chosen]
    figure = make_subplots(
        cols=3, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03
    )
    # BOS is unlike any word and says nothing about them.
    start = int(bool(similarity.provenance.bos))
    words = list(similarity.tokens[start:])
    means = []
    for column, stage in enumerate(chosen, 1):
        cosines = similarity.cosines[stage, start:, start:]
        first, second = torch.triu_indices(len(words), len(words), offset=1)
        means.append(cosines[first, second].mean().item())
        bar = "cosine" if column == 3 else None
        figure.add_trace(
            heat(cosines.tolist(), rows=words, columns=words, limit=1.0, bar=bar), 1, column
        )
    figure.update_yaxes(autorange="reversed")
    title = f"The mean cosine of two words goes from {means[0]:.2f} over {means[1]:.2f} to {means[2]:.2f}"
    return apply_theme(figure, title, note=note, height=430, width=1180)


def plot_temperatures(table: pd.DataFrame, *, note: str = "") -> go.Figure:
    """Draw the likeliest tokens' probabilities and the entropy over temperature."""
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    for order, (token, rows) in enumerate(table.groupby("token", sort=False)):
        figure.add_scatter(
            x=rows["temperature"],
            y=rows["probability"],
            name=plain(str(token)),
            line=line_of(order),
        )
    once = table.drop_duplicates("temperature")
    figure.add_scatter(
        x=once["temperature"], y=once["entropy"], name="entropy (right)", secondary_y=True,
        line={"color": GREY, "width": 4, "dash": "dot"}, opacity=0.7,
    )  # fmt: skip
    figure.update_yaxes(
        title_text="entropy in nats", secondary_y=True, showgrid=False, rangemode="tozero",
        tickmode="auto", zeroline=False,
    )  # fmt: skip
    figure.update_layout(legend={"x": 1.1, "y": 1})
    first = table["token"].iloc[0]
    own = table[table["token"] == first].set_index("temperature")["probability"]
    title = f"{first} has {own.iloc[0]:.0%} at temperature {own.index[0]} and {own.iloc[-1]:.0%} at {own.index[-1]}"
    apply_theme(figure, title, note=note, x="temperature")
    scale = {"type": "log", "range": [-8, 0.1], "dtick": 2, "exponentformat": "power"}
    return figure.update_yaxes(title_text="probability (log)", secondary_y=False, **scale)
