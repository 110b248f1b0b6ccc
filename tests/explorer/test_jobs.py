"""The cache and the jobs of the explorer: bounded, safe in threads, cancelled when nobody waits."""

import threading
import time

import pytest

from ffnprobe.cache import LRUCache
from ffnprobe.errors import FfnProbeError, OptionRefused
from ffnprobe.views.explorer import session as job_room
from ffnprobe.views.explorer.session import Jobs


def test_the_cache_is_bounded_in_number_and_bytes():
    cache = LRUCache(most=3, most_bytes=100)
    for n in range(5):
        cache.put(n, n)
    assert [cache.get(n) for n in range(5)] == [None, None, 2, 3, 4]
    cache.get(2)
    cache.put(5, 5)
    assert cache.get(2) == 2, "what was used stays"
    assert cache.get(3) is None
    cache.put("big", 1, 90)
    cache.put("bigger", 2, 500)
    assert len(cache) == 1, "the last one stays, however big"


def test_a_thing_asked_for_by_many_at_once_is_made_once():
    cache, made = LRUCache(), []

    def make():
        made.append(1)
        time.sleep(0.05)
        return "thing"

    threads = [threading.Thread(target=cache.get_or_make, args=("key", make)) for _ in range(8)]
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
    assert (job.state, job.result, job.done, job.total) == ("done", "whole", 1, 2)
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
    assert wait(second).result == "next"


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
