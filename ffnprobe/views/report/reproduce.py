"""The end of a page: the command and the Python that give it again."""

from ffnprobe.results import Result
from ffnprobe.views.recipes import has_recipe, write_recipe
from ffnprobe.views.report.blocks import code, section, words

TYPED = (
    "This needs Python: an option or token cannot be typed as a command. … stands for your data."
)


def reproduce(result: Result) -> list[str]:
    """Write the command and the Python that give a result again; nothing of one read from a file."""
    if not has_recipe(result):
        return []
    recipe = write_recipe(result, page=True)
    first = words(TYPED) if recipe.command is None else code(recipe.command)
    return [section("How to get this page again", first, code(recipe.python))]
