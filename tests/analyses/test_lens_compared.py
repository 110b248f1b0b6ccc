"""The script behind docs/lens.md runs, and on pocket the lens holds more."""

from analyses.measured.lens_compared import main


def test_it_prints_a_row_a_layer(capsys):
    main(["own", "pocket", "--neurons", "3"])
    printed = capsys.readouterr().out
    assert "promotes with" in " ".join(printed.split())
    assert len([line for line in printed.splitlines() if line.strip()[:1].isdigit()]) == 7
