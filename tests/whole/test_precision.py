"""8-bit models and 16-bit products as a user runs them."""

import json
import shutil

import pytest
from refusals import assert_refused

from nmt.cli.main import run

TEXT = b"ban des kit\nlora mus\n\nkin ban lora des mura\n"


@pytest.fixture(scope="module")
def int8(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("int8") / "model"
    assert run(["export", "--format=int8", f"--model={trained}", f"--output={folder}", "--quiet"]) == 0
    return folder


@pytest.fixture
def translate(tmp_path, call):
    """`translate(model, flags)` returns the printed JSON lines."""
    (tmp_path / "source").write_bytes(TEXT)

    def told(model, *flags):
        done = call("translate", "--model", model, f"--input={tmp_path / 'source'}", "--threads=1", "--json", *flags)
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    return told


def test_a_stored_8_bit_model_translates_like_precision_int8(trained, int8, translate):
    wanted = translate(trained, "--precision=int8")
    assert wanted != translate(trained)
    assert translate(int8) == translate(int8, "--precision=int8") == wanted  # scores too, to the last bit
    assert translate(int8, "--decoder=greedy") == translate(trained, "--decoder=greedy", "--precision=int8")


def test_an_8_bit_model_scores_and_is_evaluated_and_described_like_any_other(int8, call, tmp_path):
    (tmp_path / "en").write_bytes(TEXT)
    files = f"--source={tmp_path / 'en'}"
    scored = call("score", "--model", int8, files, f"--target={tmp_path / 'en'}")
    assert scored.code == 0 and len(scored.out.splitlines()) == 4
    assert call("evaluate", "--model", int8, files, f"--reference={tmp_path / 'en'}").code == 0
    described = call("describe", "folder", int8)
    assert described.code == 0 and "weights in int8" in described.out and "d_model = 32 " in described.out
    assert call("describe", "folder", int8, "--json").json["options"][2]["default"] == 32


def test_options_incompatible_with_8_bits_are_rejected(trained, int8, call, tmp_path):
    output = f"--output={tmp_path / 'out'}"
    (tmp_path / "source").write_bytes(TEXT)
    for words, told in (
        (["average", "--checkpoint", int8, output], "cannot be averaged"),
        (["export", "--format=int8", "--model", int8, output], "already has 8-bit weights"),
        (["export", "--format=int8", "--model", trained, output, "--quantization=int8"], "--format ctranslate2"),
        (
            ["translate", "--model", int8, f"--input={tmp_path / 'source'}", "--precision=bf16"],
            "--precision bf16: ",
        ),
        (["export", "--format=int8", "--model", int8, f"--output={int8}", "--overwrite"], "is the model to export"),
    ):
        assert_refused(call(*words), 2, told)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_steps_give_the_same_translations_for_any_length_and_number_of_lines(trained, new_nmt, tmp_path):
    (tmp_path / "source").write_bytes(TEXT)
    asked = "translate", f"--model={trained}", f"--input={tmp_path / 'source'}", "--threads=1", "--json", "--quiet"
    plain = new_nmt(*asked)
    done = new_nmt(*asked, "--compile", env={"PYTHONWARNINGS": "default", "TORCH_LOGS": "graph_breaks,graph_code"})
    assert (plain.returncode, done.returncode) == (0, 0), done.stderr
    assert b"TRACED GRAPH" in done.stderr and b"Graph break" not in done.stderr
    for compiled, written in zip(done.stdout.splitlines(), plain.stdout.splitlines(), strict=True):
        one, other = (json.loads(line)["candidates"] for line in (compiled, written))
        assert [each["tokens"] for each in one] == [each["tokens"] for each in other]
        assert [each["score"] for each in one] == pytest.approx([each["score"] for each in other], abs=1e-4)


def test_bf16_products_give_nearly_the_same_translations_on_a_cpu(trained, translate):
    plain, found = translate(trained), translate(trained, "--precision=bf16")
    for one, other in zip(plain, found, strict=True):
        assert bool(one["translation"]) == bool(other["translation"])
        for best, same in zip(one["candidates"], other["candidates"], strict=True):
            assert same["log_prob"] == pytest.approx(best["log_prob"], abs=0.5) and same != best


@pytest.mark.parametrize("is_fast", [True, False])
def test_bf16_without_hardware_support_triggers_a_warning(is_fast, trained, call, tmp_path, monkeypatch):
    monkeypatch.setattr("nmt.extensions.fast.search_speedups.matmul.has_bfloat16", lambda device: is_fast)
    (tmp_path / "source").write_bytes(TEXT)
    asked = ("translate", "--model", trained, f"--input={tmp_path / 'source'}", "--decoder=greedy", "--precision=bf16")
    done = call(*asked, "--device=cpu")
    assert done.code == 0 and ("warning: --precision bf16: " in done.err) != is_fast
    assert "--precision" not in call(*asked[:-1], "--device=cpu").err
