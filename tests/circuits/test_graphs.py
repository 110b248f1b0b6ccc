"""A circuit as a graph for other tools: what they read back is what the tables say."""

import json
from xml.etree import ElementTree

import pytest

import ffnprobe as fp
from tests.circuits.conftest import ANSWER, CONTRAST, PROMPT, RIVAL

# What circuit-tracer's frontend reads of a graph (its public models, schema version 1).
METADATA = {"slug": str, "scan": str, "transcoder_list": list, "prompt_tokens": list, "prompt": str,
            "node_threshold": float, "schema_version": int}  # fmt: skip
PARAMS = {"pinnedIds": list, "supernodes": list, "linkType": str, "clickedId": str, "sg_pos": str}
NODE = {"node_id": str, "feature": int, "layer": str, "ctx_idx": int, "feature_type": str, "token_prob": float,
        "is_target_logit": bool, "run_idx": int, "reverse_ctx_idx": int, "jsNodeId": str, "clerp": str}  # fmt: skip
TYPES = {"cross layer transcoder", "embedding", "logit", "mlp reconstruction error"}


@pytest.fixture(scope="module")
def circuit(planted):
    return fp.circuit(planted, PROMPT, ANSWER, versus=RIVAL, contrast=CONTRAST)


def test_graphml_holds_every_node_and_edge_and_adds_up(circuit, tmp_path):
    path = tmp_path / "c.graphml"
    fp.save_graph(circuit, path, groups={"first step": ["L0N9@2"]})
    space = {"g": "http://graphml.graphdrawing.org/xmlns"}
    root = ElementTree.parse(path).getroot()
    nodes = {one.get("id"): _data(one, space) for one in root.findall(".//g:node", space)}
    assert list(nodes) == circuit.nodes().node.tolist()
    assert nodes["L0N9@2"]["node_group"] == "first step"
    assert "node_group" not in nodes["L2N31@4"]
    score = 0.0
    for edge in root.findall(".//g:edge", space):
        assert {edge.get("source"), edge.get("target")} <= set(nodes)
        if edge.get("target") == "answer":
            score += float(_data(edge, space)["edge_drive"])
    assert score == pytest.approx(circuit.logit, abs=1e-3)


def _data(element, space):
    return {one.get("key"): one.text for one in element.findall("g:data", space)}


def test_networkx_reads_it(circuit, tmp_path):
    networkx = pytest.importorskip("networkx", reason="needs networkx")
    fp.save_graph(circuit, tmp_path / "c.graphml")
    graph = networkx.read_graphml(tmp_path / "c.graphml")
    assert graph.number_of_nodes() == len(circuit.nodes())
    assert isinstance(graph.nodes["L0N9@2"]["influence"], float)


def test_the_json_is_circuit_tracers(circuit, tmp_path):
    fp.save_graph(circuit, tmp_path / "cat.json", groups={"first": ["L0N9@2"]})
    graph = json.loads((tmp_path / "cat.json").read_text())
    assert graph.keys() == {"metadata", "qParams", "nodes", "links"}
    for part, wanted in ((graph["metadata"], METADATA), (graph["qParams"], PARAMS)):
        assert {name: type(value) for name, value in part.items()} == wanted
    assert graph["metadata"]["slug"] == "cat"
    assert graph["qParams"]["supernodes"] == [["first", "0_9_2"]]
    for node in graph["nodes"]:
        assert {name: type(node[name]) for name in NODE} == NODE
        assert node.keys() == NODE.keys() | {"influence", "activation"}
        assert node["feature_type"] in TYPES
    ids = [node["node_id"] for node in graph["nodes"]]
    assert len(set(ids)) == len(ids)
    assert len({node["jsNodeId"] for node in graph["nodes"]}) == len(ids)
    assert [node["clerp"][:14] for node in graph["nodes"] if node["is_target_logit"]] == [
        'Output "␣Paris'
    ]
    assert all({link["source"], link["target"]} <= set(ids) for link in graph["links"])
    (first,) = (link for link in graph["links"] if (link["source"], link["target"]) == ("0_9_2", "2_31_4"))  # fmt: skip
    edges = circuit.edges()
    drive = edges[(edges.source == "L0N9@2") & (edges.target == "L2N31@4")].drive.item()
    row = [target.node and target.node.name for target in circuit.targets].index("L2N31@4")
    assert first["weight"] == pytest.approx(drive * float(circuit.activation_slopes[row]), rel=1e-5)


def test_what_cannot_be_written_is_said(circuit, tmp_path):
    with pytest.raises(fp.FfnProbeError, match=r'"L9N9@9", in the group "a", is not a node'):
        fp.save_graph(circuit, tmp_path / "c.json", groups={"a": ["L9N9@9"]})
    with pytest.raises(fp.FfnProbeError, match=r'"\.gml" is not a format'):
        fp.save_graph(circuit, tmp_path / "c.gml")
    assert not list(tmp_path.iterdir())


def test_a_file_is_read_back(circuit, tmp_path):
    fp.save(circuit, tmp_path / "c.json")
    found = fp.open_result(tmp_path / "c.json")
    assert found.kind == "Circuit"
    assert list(found.tables()) == ["neurons", "nodes", "edges", "accounts"]
    assert found.tables()["edges"].drive.tolist() == circuit.edges().drive.tolist()
    assert found.provenance == circuit.provenance


def test_figures_show_nodes_edges_and_shares(planted, circuit):
    figure = fp.plot(circuit)
    (nodes,) = (one for one in figure.data if one.customdata is not None)
    assert set(nodes.customdata) == {"L0N9@2", "L2N31@4"}
    assert nodes.y[list(nodes.customdata).index("L0N9@2")] < nodes.y[list(nodes.customdata).index("L2N31@4")]  # fmt: skip
    texts = [note.text for note in figure.layout.annotations]
    assert texts[: len(circuit.trace)] == [token.replace("<", "&lt;").replace(">", "&gt;") for token in circuit.trace.tokens]  # fmt: skip
    assert "is worth most to ␣Paris rather than ␣basketball" in figure.layout.title.text
    with pytest.raises(fp.FfnProbeError, match="this circuit was not tested"):
        fp.plot(circuit, "recovery")
    found = fp.check_circuit(circuit, sizes=[5, 10])
    assert fp.plot(found).layout.title.text.startswith(
        "By influence, 80 % is recovered with 5 neurons"
    )
