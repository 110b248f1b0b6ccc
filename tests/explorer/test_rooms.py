"""The explorer's own parts: addresses, the shelf, jobs, sheets; and what other rooms give it."""

import threading
import time

import pytest

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError, OptionRefused
from ffnprobe.views.explorer import jobs as job_room
from ffnprobe.views.explorer.desk import Desk
from ffnprobe.views.explorer.exports import gather
from ffnprobe.views.explorer.jobs import Jobs
from ffnprobe.views.explorer.places import Place, name_token, read_place
from ffnprobe.views.explorer.sheets import Live, write
from ffnprobe.views.explorer.shelf import Shelf
from ffnprobe.views.files.reader import read_table
from tests.conftest import JORDAN
from tests.explorer.client import Client
from tests.explorer.conftest import running
from tests.families.builders import write_family


@pytest.mark.parametrize("text", [" basketball", "a+b&c=d#e?", "␣", "Ünïcode\n", "%41", "<script>"])
def test_an_address_gives_back_what_was_put_in(text):
    address = Place("/", ()).here(prompt=text, **name_token("answer", text))
    path, _, search = address.partition("?")
    place = read_place(path, f"?{search}")
    assert place.text("prompt") == text
    assert place.token("answer") == text
    assert "<" not in address
    assert " " not in address


def test_an_answer_is_named_by_text_or_by_id_never_both():
    place = read_place("/", "?prompt=a&answer=b&answer_id=7")
    assert place.token("answer") == 7
    assert read_place("/", place.here(**name_token("answer", "c"))[1:]).token("answer") == "c"
    with pytest.raises(OptionRefused, match="is no token id"):
        read_place("/", "?answer_id=x").token("answer")


def test_the_question_is_carried_and_the_rest_is_left():
    place = read_place("/", "?prompt=a&versus=b&after=L2&bos=0")
    assert place.to("/neuron/L0N1") == "/neuron/L0N1?prompt=a&versus=b&bos=0"
    assert place.bos is False


def test_a_thousand_options_are_not_looked_at():
    assert len(read_place("/", "?" + "&".join(f"a{n}=1" for n in range(1000))).options) == 64


def test_the_shelf_is_bounded_in_number_and_bytes():
    shelf = Shelf(most=3, most_bytes=100)
    for n in range(5):
        shelf.put(n, n)
    assert [shelf.find(n) for n in range(5)] == [None, None, 2, 3, 4]
    shelf.find(2)
    shelf.put(5, 5)
    assert shelf.find(2) == 2, "what was used stays"
    assert shelf.find(3) is None
    shelf.put("big", 1, 90)
    shelf.put("bigger", 2, 500)
    assert len(shelf) == 1, "the last one stays, however big"


def test_a_thing_asked_for_by_many_at_once_is_made_once():
    shelf, made = Shelf(), []

    def make():
        made.append(1)
        time.sleep(0.05)
        return "thing"

    threads = [threading.Thread(target=shelf.take, args=("key", make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def wait(job):
    for _ in range(500):
        if job.is_over:
            return job
        time.sleep(0.01)
    raise AssertionError(job.state)


def test_a_job_shows_what_it_knows_and_ends():
    jobs = Jobs()

    def work(job):
        job.show("half")
        job.count(1, 2)
        return "whole"

    job = wait(jobs.start(work))
    assert (job.state, job.found, job.done, job.total) == ("done", "whole", 1, 2)
    assert jobs.find(job.name) is job
    assert jobs.find("unknown") is None


def test_a_job_is_cancelled_at_its_next_step_and_the_next_one_runs():
    jobs, gate = Jobs(), threading.Event()

    def work(job):
        gate.wait(10)
        job.count(1, 2)
        raise AssertionError("not reached")

    first, second = jobs.start(work), jobs.start(lambda job: "next")
    jobs.cancel(first.name)
    gate.set()
    assert wait(first).state == "cancelled"
    assert wait(second).found == "next"


def test_a_job_that_fails_says_so_and_takes_nobody_with_it():
    jobs = Jobs()

    def refuse(job):
        raise FfnProbeError("not so.")

    def crash(job):
        raise ZeroDivisionError

    assert wait(jobs.start(refuse)).error.what == "not so."
    assert wait(jobs.start(crash)).error.what == "this could not be computed."
    assert wait(jobs.start(lambda job: 1)).state == "done"


def test_jobs_are_bounded_and_what_nobody_watches_is_dropped(monkeypatch):
    jobs, gate = Jobs(), threading.Event()
    waiting = [jobs.start(lambda job: gate.wait(10)) for _ in range(job_room.MOST)]
    with pytest.raises(OptionRefused, match="too many pages are waiting"):
        jobs.start(lambda job: None)
    monkeypatch.setattr(job_room, "PATIENCE", 0.0)
    gate.set()
    for job in waiting[1:]:
        assert wait(job).state == "cancelled"
    jobs.start(lambda job: None)
    assert len(jobs) == 1


@pytest.mark.parametrize(
    ("path", "search", "live", "tables", "command"),
    [
        ("/", {}, {"temperature": 2}, {"predictions"}, "ffnprobe run --model pocket --temperature 2 -- 'Michael"),
        ("/", {"after": "L1"}, {}, {"predictions", "lens"}, "ffnprobe run --model pocket -- 'Michael"),
        ("/neuron/L3N12", {}, {}, {"rows", "tokens", "examples", "feeds", "fed_by", "similar", "prompt"}, "ffnprobe read --model pocket L3N12"),
        ("/neuron/L3N12", {}, {"set": 4.0, "generate": 3}, {"predictions", "texts"}, "ffnprobe steer --model pocket --set L3N12=4 --generate 3 -- 'Michael"),
        ("/search", {"token": " golf", "rank": "dot", "layers": "1"}, {}, {"search"}, "ffnprobe search --model pocket --top 20 --rank dot --layers 1 -- ' golf'"),
        ("/facts", {"relation": "sport"}, {}, {"facts"}, None),
    ],
)  # fmt: skip
def test_what_is_on_the_screen_can_be_taken_along(desk, tmp_path, path, search, live, tables, command):  # fmt: skip
    place = Place(path, tuple({"prompt": JORDAN, **search}.items()))
    sheet = gather(desk, place, Live(live))
    assert tables <= set(sheet.tables)
    assert sheet.recipe.command == command or sheet.recipe.command.startswith(command)
    name = sorted(tables)[0]
    for suffix in (".csv", ".parquet"):
        (tmp_path / f"x{suffix}").write_bytes(write(sheet, suffix, name))
        read = read_table(tmp_path / f"x{suffix}")
        assert list(read.columns) == list(sheet.tables[name].columns)
        assert read.attrs["provenance"]["model"] == "pocket"
    page = write(sheet, ".html", None).decode()
    assert page.startswith("<!doctype html>")
    compile(sheet.recipe.python, "recipe", "exec")


def test_the_python_of_a_recipe_gives_the_same(desk, capsys):
    place = Place("/neuron/L0N378", (("prompt", JORDAN),))
    sheet = gather(desk, place, Live({"set": -2.0}))
    exec(compile(sheet.recipe.python, "recipe", "exec"), {})
    printed = capsys.readouterr().out
    assert f"{sheet.tables['predictions'].probability_after[0]:.6f}"[:7] in printed


def test_runs_in_two_threads_see_only_their_own_hooks(pocket):
    """Without turns, a steered run would change a plain one beside it."""
    plain = fp.run(pocket, JORDAN).logits
    same = []

    def steer():
        for _ in range(6):
            fp.steer(pocket, JORDAN, {"L0": 5.0})

    def run():
        same.extend(fp.run(pocket, JORDAN).logits.equal(plain) for _ in range(12))

    threads = [threading.Thread(target=work) for work in (steer, run, run)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 24


def test_an_explanation_is_told_as_it_grows_and_ends_the_same(pocket):
    seen, counted = [], []
    explanation = fp.explain(
        pocket, JORDAN, " basketball", top=4, watch=seen.append,
        progress=lambda done, total: counted.append((done, total)),
    )  # fmt: skip
    whole = fp.explain(pocket, JORDAN, " basketball", top=4)
    for name, table in whole.tables().items():
        assert explanation.tables()[name].equals(table), name
    assert explanation.provenance == whole.provenance
    assert "effect" not in seen[0].neurons
    assert seen[0].map is None
    assert seen[1].map.equals(whole.map)
    known = [int(s.neurons.effect.notna().sum()) for s in seen[2:]]
    assert len(known) == pocket.config.layers
    assert known == sorted(known)
    assert known[-1] == len(seen[-1].neurons)
    assert counted[-1] == (pocket.config.neurons, pocket.config.neurons)
    assert [done for done, _ in counted] == sorted(done for done, _ in counted)


def test_the_stream_is_read_after_a_layer_as_the_lens_reads_it(pocket, jordan):
    last = jordan.predictions(5)
    assert jordan.predictions(5, after="L5").token.tolist() == last.token.tolist()
    for position in (0, 3, -1):
        lens = fp.lens(jordan, position=position).table
        rows = lens[lens.part != "attention"].reset_index(drop=True)
        for order, after in enumerate(["embedding", "L0", "L3", "L5"]):
            row = rows.iloc[[0, 1, 4, 6][order]]
            found = jordan.predictions(1, position=position, after=after)
            assert found.token[0] == row.token
            assert found.probability[0] == pytest.approx(row.token_probability, rel=1e-5)
    assert jordan.predictions(1, after="L2").attrs["provenance"]["settings"] == "the stream read after L2"  # fmt: skip
    with pytest.raises(OptionRefused, match='not read after "L6"'):
        jordan.predictions(1, after="L6")


def test_a_search_among_neurons_named_keeps_their_order(pocket):
    everyone = fp.search(pocket, " basketball", k=pocket.config.neurons)
    chosen = everyone.table.name.tolist()[5:500:50]
    found = fp.search(pocket, " basketball", k=4, among=reversed(chosen))
    assert found.table.name.tolist() == chosen[:4]
    assert len(fp.search(pocket, " basketball", k=10, among=["L2N1", "L2N3"], layers="2")) == 2
    with pytest.raises(OptionRefused, match="no neuron of these layers"):
        fp.search(pocket, " basketball", among=["L2N1"], layers="3")


def test_a_gated_neuron_is_shown_with_its_gate(tmp_path):
    model = fp.load(write_family(tmp_path, "llama"), device="cpu")
    with running(Desk(model)) as address:
        client = Client(address)
        page = client.page("/neuron/L1N3", "?prompt=the cat sat on the&answer= basketball")
        for words in ("gate opens on", "question opens on", "Its answer feeds the gates of",
                      "Its gate is fed by the answers of", "gate score"):  # fmt: skip
            assert words in page, words
        found = client.page("/search", "?token= basketball&by=gate")
        assert "gate tokens" in found
