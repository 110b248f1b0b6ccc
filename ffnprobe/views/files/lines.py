"""A result as JSON lines: one object a row of its first table, for DuckDB, pandas and the shell.

The first line also has the `provenance`. Labels made with their scan at hand have `examples`: the strongest,
each as text with the token in brackets. Missing and infinite numbers are null.
"""

import json
from typing import Any

from ffnprobe.corpora.contexts import quote, strongest_examples
from ffnprobe.corpora.labels import Labels
from ffnprobe.results import Result, TableSet
from ffnprobe.views.files.formats import plain_row

EXAMPLES = 3


def to_jsonl(result: Result, written: TableSet) -> str:
    """Write the first table's rows, one a line."""
    rows: list[dict[str, Any]] = [plain_row(row) for row in written.table.to_dict("records")]
    if isinstance(result, Labels) and result.scan is not None:
        for row in rows:
            found = strongest_examples(result.scan, row["name"], EXAMPLES)
            row["examples"] = [quote(example) for example in found]
    if rows:
        rows[0]["provenance"] = written.provenance.as_dict()
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
