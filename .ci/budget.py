"""Hold every test that is not long to its processor time; print the ten slowest either way.

python .ci/budget.py short.xml
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.clock import BUDGET, PROPERTY, SHARE


def main() -> None:
    """Read pytest's own record of a run."""
    seconds = {
        f"{test.get('classname')}::{test.get('name')}": float(timed.get("value", "nan"))
        for test in ElementTree.parse(sys.argv[1]).iter("testcase")
        for timed in test.iter("property")
        if timed.get("name") == PROPERTY
    }
    if not seconds:
        sys.exit(f"{sys.argv[1]} says of no test how long it took")
    total = sum(seconds.values())
    allowed = max(BUDGET, SHARE * total)
    print(f"{len(seconds)} tests, {total:.0f} s of processor time; the slowest:")
    slowest = sorted(seconds.items(), key=lambda test: -test[1])
    for name, spent in slowest[:10]:
        print(f"{spent:6.2f} s  {name}")
    over = [name for name, spent in slowest if spent > allowed]
    if over:
        sys.exit(
            f"over {allowed:.3g} s: {', '.join(over)}: make it cheaper, or long (tests/tiers.py)"
        )


if __name__ == "__main__":
    main()
