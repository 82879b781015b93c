"""`nmt translate --beam-graph`: writes the search graphs of the lines to a file and leaves the translations unchanged."""

import json

import pytest


@pytest.fixture
def translate(trained, tmp_path, call):
    (tmp_path / "lines").write_text("ban des\n\nlora kit\n")
    files = [f"--model={trained}", f"--input={tmp_path / 'lines'}"]
    return lambda *flags: call("translate", *files, "--quiet", "--threads=1", *flags)


@pytest.mark.parametrize("flags", [[], ["--decoder=diverse-beam", "--attention-lines=1"]])
def test_the_beam_graphs_of_the_first_lines_contain_the_printed_translations(translate, tmp_path, flags):
    told = translate(*flags, f"--beam-graph={tmp_path / 'g.json'}")
    assert told == translate(*flags)
    graphs = json.loads((tmp_path / "g.json").read_bytes())
    assert [graph["source"] for graph in graphs] == [["ban", "des"], ["lora", "kit"]][: 1 if flags else 2]
    for graph, line in zip(graphs, filter(None, told.out.splitlines()), strict=False):
        assert [node["token"] for node in graph["nodes"] if node["best"]] == ["<s>", *line.split(), "</s>"]
    assert translate(*flags, f"--beam-graph={tmp_path / 'g.html'}").code == 0
    assert (tmp_path / "g.html").read_text().count("<svg") == len(graphs)


def test_an_impossible_beam_graph_is_rejected_before_translation(translate, tmp_path):
    for flags, reason in [
        ([f"--beam-graph={tmp_path / 'g.dot'}"], "only to files whose names end with .html, .json"),
        ([f"--beam-graph={tmp_path / 'no/g.json'}"], "not found"),
        ([f"--beam-graph={tmp_path / 'g.json'}", "--decoder=greedy"], "use --decoder beam"),
        ([f"--beam-graph={tmp_path / 'g.json'}", "--devices=2"], "one device"),
    ]:
        told = translate(*flags)
        assert (told.code, told.out) == (2, "") and reason in told.err
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]
