"""Which tests are long, by their place: `pytest` leaves these out, `pytest -m ""` runs everything.

A test is long if it lies in one of PLACES, has one of MARKERS, or is a case of a family that is not
among FAMILIES: those four cover LayerNorm and learned positions (gpt2); parallel layers and partial
rotary embeddings (gpt_neox); gated neurons, grouped-query attention and scaled rotary embeddings
(llama); post-norms, norms of heads and windows (gemma3_text).
"""

import pytest

from tests.families.builders import CASES

MARKERS = ("browser", "gemma3", "gpt2", "ray", "smollm2")
FAMILIES = ("gpt2", "gpt_neox", "llama tied, biased, far", "gemma3_text")
# Folders, modules and single tests, as a test's id begins.
PLACES = (
    # odd commands, writers that are killed, processes that are started
    "tests/fuzz/",
    "tests/corpora/test_kills.py",
    "tests/test_store.py::test_killed_in_the_middle_of_any_write",
    "tests/corpora/test_processes.py",
    "tests/corpora/test_scans.py::test_sigkill_in_the_middle_of_a_write_changes_nothing",
    "tests/corpora/test_scans.py::test_it_goes_on_where_it_was_stopped",
    "tests/corpora/test_inputs.py::test_damaged_parquet_is_refused_or_read",
    "tests/cli/test_basic_commands.py::test_commands_that_run_a_prompt_load_no_library",
    "tests/cli/test_interrupts.py",
    "tests/cli/test_machines.py",
    "tests/cli/test_scan_command.py::test_ctrl_c_keeps_what_is_done",
    # servers and the hub
    "tests/serving/test_clients_leaving.py",
    "tests/serving/test_protocol.py",
    "tests/serving/test_tools.py::test_work_is_stopped_when_its_time_is_over",
    "tests/explorer/test_callbacks.py::test_beyond_what_can_be_answered",
    "tests/explorer/test_callbacks.py::test_malformed_callbacks_are_refused",
    "tests/explorer/test_callbacks.py::test_idle_connections_hold_no_more",
    "tests/explorer/test_memory.py",
    "tests/explorer/test_server.py::test_many_users_clicks",
    "tests/explorer/test_server.py::test_the_command_serves",
    "tests/models/test_hub.py",
    "tests/models/test_interrupts.py::test_a_run_after_one_that_was_interrupted_at_any_line_is_right",
    # notebooks, pages, the site, scripts
    "tests/analyses/",
    "tests/whole/test_notebooks.py::test_a_claim_that_fails_stops_the_notebook",
    "tests/whole/test_notebooks.py::test_a_notebook_runs_to_its_end",
    "tests/whole/test_pages.py::test_every_block_of_a_page_runs",
    "tests/whole/test_pictures.py",
    "tests/whole/test_site.py",
    "tests/test_tiers.py::test_both_parts_are_everything",
    "tests/views/test_hostile_labels.py",
    "tests/views/test_touched.py",
    "tests/views/test_report.py::test_the_page_can_be_got_again_as_it_says",
    # what is said of pocket, measured over many facts
    "tests/cli/test_score_command.py::test_the_readme_says_how_many_facts",
    "tests/editing/test_certificates.py",
    "tests/editing/test_edits.py::test_memit_scores_as_published",
    "tests/evidence/test_curve.py::test_most_facts_of_pocket_fall",
    "tests/evidence/test_explaining.py::test_listed_neurons_carry_their_facts",
    "tests/evidence/test_grades.py::test_random_weights_get_no_a",
    "tests/facts/test_relations.py::test_removal_is_the_replays",
    "tests/facts/test_relations.py::test_p_values_are_uniform",
    "tests/facts/test_scoring.py::test_pocket_knows_what_its_card_says",
    "tests/models/test_pocket.py::test_it_recalls_its_facts",
    "tests/models/test_pocket.py::test_the_means_are_the_means",
    "tests/models/test_pocket.py::test_without_its_mlps",
    # GPT-2 small's shape in TransformerLens
    "tests/facts/test_scoring.py::test_every_number_is_attributes[small]",
    "tests/interventions/test_ablation.py::test_sample_of_gpt2_small_shape",
    "tests/tracing/test_drivers.py::test_drives_of_neurons_equal_transformer_lenss[small]",
    "tests/tracing/test_pushes.py::test_pushes_equal_transformer_lenss[small]",
)
MODULES = {place.rstrip("/") for place in PLACES if "::" not in place}


def is_long(item: pytest.Item) -> bool:
    """Say whether a test is long."""
    if item.nodeid.startswith(PLACES) or any(map(item.get_closest_marker, MARKERS)):
        return True
    given = getattr(item, "callspec", None)
    cases = [given.params.get(name) for name in ("case", "family")] if given else []
    return any(case in CASES and case not in FAMILIES for case in cases)
