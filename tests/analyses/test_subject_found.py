"""Where `explain` looks: the script's positions are those of `explain`, and pocket's subjects are found."""

import ffnprobe as fp
import subject_found as script
from ffnprobe.facts.formats import read_facts


def test_a_fact_without_its_subject_in_the_prompt_is_passed_over(pocket):
    prompt = "Michael Jordan plays the sport of"
    for subject in ("", "Tiger Woods", prompt):
        assert script.find_subject(pocket, fp.FactRow(prompt, " basketball", "", subject)) is None
    unknown = fp.FactRow(prompt, " golf", "", "Michael Jordan")
    assert script.find_subject(pocket, unknown) is None
    trace, answer, subject = script.find_subject(
        pocket, fp.FactRow(prompt, " basketball", "", "Michael Jordan")
    )
    assert (trace.tokens[subject], pocket.vocab.show_all([answer])) == ("␣Jordan", ["␣basketball"])


def test_what_is_counted_is_where_explain_looks(pocket):
    for row in read_facts("pocket").rows[:3]:
        trace, answer, subject = script.find_subject(pocket, row)
        found = {one["rule"]: one for one in script.compare_rules(trace, answer, subject)}
        listed = set(fp.explain(pocket, row.prompt, row.answer).neurons.position)
        assert found["estimates"]["found"] == (subject in listed)
        assert found["estimates"]["looked_at"] >= len(listed - {len(trace) - 1})


def test_on_pocket_the_subject_is_found(capsys):
    script.main(["pocket", "--facts", "5"])
    printed = capsys.readouterr().out
    assert "pocket, 5 facts" in printed
    (line,) = [line for line in printed.splitlines() if line.startswith("estimates")]
    assert line.split()[1:3] == ["1.00", "1.00"]
