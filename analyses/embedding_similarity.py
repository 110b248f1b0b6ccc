"""Which tokens are alike, how does that change from layer to layer, and what does temperature do?

Method: dot products and cosines of token embeddings, each pair ranked within the
vocabulary (related, unrelated, opposed); cosines between a prompt's words at every layer; the
next-token distribution at temperatures from 0.1 to 3.

Found: in pocket sports are related (basketball and football 0.39), countries and sports are not, and
some sports oppose some cities. Position embeddings make a prompt's words similar (0.05 to 0.32), layers
up to L4 more so (0.55), and the last two make them distinct (0.13). " basketball" still has 83 % at
temperature 2.

    python analyses/embedding_similarity.py --html similarity.html
"""

import ffnprobe as fp
from analyses.lab.embeddings import compare_tokens, find_neighbours, sweep_temperatures
from analyses.lab.figures import plot_temperatures, plot_tokens, plot_word_similarity
from analyses.script import new_parser, run_script
from ffnprobe.views.saving import save_figures
from ffnprobe.views.terminal import print_tables

TOKENS = [" basketball", " football", " tennis", " Paris", " London", " France", " Klimt"]


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, model=True)
    parser.add_argument("prompt", nargs="?", default="Michael Jordan plays the sport of")
    parser.add_argument("--token", action="append", help='" basketball", given several times')
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    tokens = options.token or TOKENS
    compared = compare_tokens(model, tokens)
    trace = fp.run(model, options.prompt)
    similarity = fp.similarity(trace)
    temperatures = sweep_temperatures(trace)
    wide = temperatures.pivot(
        index=["temperature", "entropy"], columns="token", values="probability"
    ).reset_index()
    pairs = similarity.table
    words = pairs[pairs["position"] >= int(trace.has_bos)]
    print_tables({
        "pairs of tokens": compared,
        f"neighbours of {tokens[0]}": find_neighbours(model, tokens[0]),
        "words of the prompt, mean over pairs": words.groupby("stage", sort=False)[
            ["dot", "cosine"]].mean().reset_index(),
        "the likeliest next tokens at some temperatures": wide[
            wide["temperature"].isin([0.1, 0.5, 1.0, 2.0, 3.0])],
    })  # fmt: skip
    if options.html:
        note = f"{model.name}: {trace.prompt}"
        figures = [
            plot_tokens(compared, note=f"{model.name}'s token embeddings."),
            plot_word_similarity(similarity, note=note),
            plot_temperatures(temperatures, note=note),
        ]
        save_figures(figures, options.html, title="Embeddings and temperature")


if __name__ == "__main__":
    run_script(main)
