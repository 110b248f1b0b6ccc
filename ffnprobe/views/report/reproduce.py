"""The end of a page: the command and the Python that give it again."""

from ffnprobe.evidence.explanation import Explanation
from ffnprobe.reading.surveys import Survey
from ffnprobe.views.recipes import Recipe, recipe_explanation, recipe_survey
from ffnprobe.views.report.blocks import code, section, words


def reproduce_explanation(explanation: Explanation) -> str:
    """Write the command and the Python that give an explanation again."""
    return _section(recipe_explanation(explanation))


def reproduce_survey(survey: Survey) -> str:
    """Write the command and the Python that give a survey again."""
    return _section(recipe_survey(survey))


def _section(recipe: Recipe) -> str:
    first = (
        words(
            "This needs Python: an option or token cannot be typed as a command. … stands for your data."
        )
        if recipe.command is None
        else code(recipe.command)
    )
    return section("How to get this page again", first, code(recipe.python))
