"""`match` as a shell sees it."""

import json

from tests.cli.runner import ffnprobe, refused


def test_match_prints_pairs_and_layers(tiny_folder, tiny):
    result = ffnprobe("match", tiny_folder, "--model", tiny_folder, "-k", "3")
    assert result.exit_code == 0, result.output
    assert f"156 of 156 neurons of {tiny.name} have a twin in {tiny.name}" in result.stdout
    assert "limit" in result.stdout
    asked = ("match", tiny_folder, "--model", tiny_folder, "-k", "3", "--format", "json")
    body = json.loads(ffnprobe(*asked).stdout)
    assert [len(body[name]) for name in ("pairs", "neurons", "layers")] == [3, 156, 3]
    assert body["provenance"]["settings"]["other_identity"] == tiny.identity


def test_what_match_refuses(tiny_folder, tmp_path):
    assert "different vocabularies" in refused("match", "pocket", "--model", tiny_folder)
    assert "compared between two scans" in refused("match", "pocket", "--store", tmp_path)
    assert '"gtp2" is not a known model' in refused("match", "gtp2", "--model", tiny_folder)
