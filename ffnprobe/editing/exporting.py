"""Write an edited model as an ordinary folder, with its certificate as the folder's card."""

import os
from pathlib import Path

from ffnprobe.arguments import verb
from ffnprobe.editing.certificates import Certificate
from ffnprobe.editing.edits import Edited
from ffnprobe.models.folders import write_folder

# A card is for reading; `save` writes every row.
ROWS = 20


@verb
def export(
    edited: Edited, folder: str | os.PathLike[str], *, certificate: Certificate | None = None
) -> None:
    """Save an edited model as a new Hugging Face folder, which `fp.load` and transformers read.

    The folder is written whole or not at all; one that exists is refused. It loads to the same
    fingerprint. Its README.md says what was edited, and with a certificate what else changed.

    >>> import ffnprobe as fp, tempfile
    >>> edited = fp.edit(fp.load("pocket"), "Michael Jordan plays the sport of", " tennis")
    >>> fp.export(edited, tempfile.mkdtemp() + "/tennis")
    """
    write_folder(
        edited.model, Path(folder), files_of=edited.original, card=_write_card(edited, certificate)
    )


def _write_card(edited: Edited, certificate: Certificate | None) -> str:
    own = edited.original
    lines = [
        f"# {own.name}, edited",
        f"{own.source}, weights {own.fingerprint}, edited by ffnprobe {edited.provenance.version}: "
        f"{edited.provenance.describe()}.",
        "## Written",
        *(f'- "{one.prompt}" → "{one.answer}"' for one in edited.requests[:ROWS]),
    ]
    if len(edited.requests) > ROWS:
        lines.append(f"- … and {len(edited.requests) - ROWS:,} more")
    if certificate is not None:
        lines += ["## Certificate", f"{certificate.title}.", certificate.caption + "."]
        for row in certificate.table.itertuples():
            lines.append(
                f"- {row.measure}: {row.before:.4f} before, {row.after:.4f} after ({row.cases:,})"
            )
        lines += [
            f'- changed: "{row.prompt}" {row.said_before} → {row.said_after}'
            for row in certificate.changed.head(ROWS).itertuples()
        ]
    return "\n\n".join(lines) + "\n"
