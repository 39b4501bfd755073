"""Checkpoints as a user names them: what is filled with, and the one sentence about each thing that can be wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine.models import tiny

from tenon_engine import cli, runtime
from tenon_engine.models import registry
from tenon_engine.models.hub import families, shards

PROGRAM = "def area(r):\n    \n    return r * r * pi\n"
WRITERS: dict[str, Callable[[Path], Path]] = {
    "llada": tiny.write_llada,
    "dream": tiny.write_dream,
    "dreamon": lambda folder: tiny.write_dream(folder, dreamon=True),
    "gemma": tiny.write_diffusion_gemma,
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("checkpoints")
    return {family: write(base / family) for family, write in WRITERS.items()}


@pytest.fixture(autouse=True)
def _desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENON_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TENON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TENON_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "area.py").write_text(PROGRAM, encoding="utf-8")


@pytest.fixture
def copy(originals: dict[str, Path], tmp_path: Path) -> Path:
    """A checkpoint to damage."""
    return Path(shutil.copytree(originals["llada"], tmp_path / "model"))


def fill(model: Path | str) -> int:
    return cli.main(["fill", "area.py:2:5", "--model", str(model), "--max-tokens", "8", "--json"])


def assert_refused(capsys: pytest.CaptureFixture[str], model: Path | str, *told: str) -> None:
    """Exit code 2, nothing on stdout, one line on stderr that says all of `told`."""
    code = fill(model)
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("tenon: ")
    assert "internal error" not in err
    for part in told:
        assert part in err


def split(folder: Path) -> list[Path]:
    """Spread the weights over three shards and an index."""
    tensors = load_file(folder / shards.SINGLE)
    (folder / shards.SINGLE).unlink()
    listed = {name: f"model-{index % 3 + 1:05}-of-00003.safetensors" for index, name in enumerate(tensors)}
    for file in set(listed.values()):
        save_file({name: tensors[name] for name in tensors if listed[name] == file}, folder / file)
    write_json(folder / shards.INDEX, {"metadata": {}, "weight_map": listed})
    return sorted(folder.glob("model-*.safetensors"))


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize("family", WRITERS)
def test_a_folder_with_a_checkpoint_of_every_family_fills(
    capsys: pytest.CaptureFixture[str], originals: dict[str, Path], family: str
) -> None:
    assert fill(originals[family]) in (0, 3)  # random weights need not write what is worth showing
    answer = json.loads(capsys.readouterr().out)
    assert answer["model"] == str(originals[family])
    assert answer["steps"] > 0


def test_shards_are_one_checkpoint(
    capsys: pytest.CaptureFixture[str], copy: Path, originals: dict[str, Path]
) -> None:
    whole = shards.read(copy)
    split(copy)
    assert shards.read(copy).tensors == whole.tensors == shards.read(originals["llada"]).tensors
    assert fill(copy) in (0, 3)


def test_headers_tell_bytes_and_parameters(copy: Path) -> None:
    weights = shards.read(copy)
    tensors = load_file(copy / shards.SINGLE)
    assert weights.parameters == {"F32": sum(tensor.numel() for tensor in tensors.values())}
    assert weights.size_bytes == (copy / shards.SINGLE).stat().st_size


def test_a_relative_folder_is_found_by_an_engine_that_stands_elsewhere(
    originals: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(originals["llada"].parent)
    assert runtime.full_name("llada") == runtime.full_name("./llada") == str(originals["llada"])
    assert runtime.files_of("llada") == runtime.files_of(str(originals["llada"]))
    (originals["llada"].parent / "tenon-0.5b").mkdir(exist_ok=True)
    assert runtime.full_name("tenon-0.5b") == "tenon-0.5b"


def test_the_files_of_a_hub_id_stay_in_the_runtime_folder() -> None:
    for name in ("owner/name", "owner/name@refs/pr/1", "../../x/y"):
        assert runtime.full_name(name) == name
        assert runtime.files_of(name).lock.parent == runtime.folder()


def test_what_has_a_slash_is_of_the_hub_and_other_names_are_refused_with_what_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    registry.check("owner/name")
    assert_refused(capsys, "gpt-9", "there is no model 'gpt-9'", "tenon-0.5b", *families.examples())


def test_a_folder_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(capsys, "./nowhere/at/all", "./nowhere/at/all is not a folder")


def test_a_file_is_refused(capsys: pytest.CaptureFixture[str], copy: Path) -> None:
    assert_refused(capsys, copy / "config.json", "is not a folder")


def test_a_hub_id_that_is_not_here_is_refused_offline(capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(capsys, "owner/nothing", "owner/nothing is not on this machine", "TENON_OFFLINE")


def test_a_folder_without_config_is_refused(capsys: pytest.CaptureFixture[str], copy: Path) -> None:
    (copy / "config.json").unlink()
    assert_refused(capsys, copy, "has no config.json")


@pytest.mark.parametrize("text", ["{", "[1]", "\udcff"])
def test_a_damaged_config_is_refused(capsys: pytest.CaptureFixture[str], copy: Path, text: str) -> None:
    (copy / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert_refused(capsys, copy, "config.json")


@pytest.mark.parametrize(
    ("family", "damage"),
    [
        ("gemma", {"canvas_length": "x"}),
        ("gemma", {"canvas_length": 1}),
        ("gemma", {"canvas_length": None}),
        ("gemma", {"text_config": None}),
        ("gemma", {"text_config": {"hidden_size": 0}}),
        ("gemma", {"text_config": {"vocab_size": 0}}),
        ("gemma", {"text_config": {"pad_token_id": 1 << 20}}),
        ("llada", {"n_heads": -1}),
        ("llada", {"mlp_hidden_size": -1}),
        ("llada", {"mask_token_id": -1}),
        ("dream", {"hidden_size": -1}),
        ("dream", {"mask_token_id": -1}),
    ],
)
def test_a_config_with_a_wrong_value_is_refused(
    capsys: pytest.CaptureFixture[str],
    originals: dict[str, Path],
    tmp_path: Path,
    family: str,
    damage: dict[str, object],
) -> None:
    folder = Path(shutil.copytree(originals[family], tmp_path / "odd"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for name, value in damage.items():
        config[name] = config[name] | value if isinstance(value, dict) else value
    write_json(folder / "config.json", config)
    assert_refused(
        capsys, folder, "damaged" if "canvas_length" in damage and damage["canvas_length"] != "x" else "get"
    )


@pytest.mark.parametrize(
    ("named", "told"), [(["LlamaForCausalLM"], "LlamaForCausalLM"), ([], "no named"), (None, "no named")]
)
def test_another_architecture_is_refused_with_those_that_are_supported(
    capsys: pytest.CaptureFixture[str], copy: Path, named: object, told: str
) -> None:
    write_json(copy / "config.json", {"architectures": named})
    assert_refused(capsys, copy, told, "not supported", *families.FAMILIES)


def test_a_left_to_right_model_of_a_supported_architecture_is_refused(
    capsys: pytest.CaptureFixture[str], originals: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(originals["dream"], tmp_path / "qwen"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del config["mask_token_id"]
    write_json(folder / "config.json", config | {"architectures": ["Qwen2ForCausalLM"]})
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    del settings["mask_token"]
    write_json(folder / "tokenizer_config.json", settings)
    assert_refused(capsys, folder, "no diffusion model")


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth"])
def test_weights_that_could_run_code_are_refused(
    capsys: pytest.CaptureFixture[str], copy: Path, suffix: str
) -> None:
    (copy / shards.SINGLE).rename(copy / f"pytorch_model{suffix}")
    assert_refused(capsys, copy, f"{suffix} files only", "safetensors")


def test_no_weights_at_all_are_refused(capsys: pytest.CaptureFixture[str], copy: Path) -> None:
    (copy / shards.SINGLE).unlink()
    assert_refused(capsys, copy, "has no weights")


def test_missing_shards_are_named(capsys: pytest.CaptureFixture[str], copy: Path) -> None:
    first, second, _ = split(copy)
    first.unlink()
    assert_refused(capsys, copy, f"lacks {first.name}: get the checkpoint again")
    second.unlink()
    assert_refused(capsys, copy, f"lacks {first.name} and 1 more")


def test_a_shard_without_a_tensor_that_it_should_hold_is_named(
    capsys: pytest.CaptureFixture[str], copy: Path
) -> None:
    first, second, _ = split(copy)
    first.write_bytes(second.read_bytes())
    assert_refused(capsys, copy, str(first), "lacks", shards.INDEX)


@pytest.mark.parametrize("names", [["../../secret.safetensors"], ["/etc/passwd"], [3], [None], ["model.bin"]])
def test_an_index_that_leads_elsewhere_is_refused(
    capsys: pytest.CaptureFixture[str], copy: Path, names: list[object]
) -> None:
    split(copy)
    write_json(copy / shards.INDEX, {"weight_map": {f"tensor{n}": name for n, name in enumerate(names)}})
    assert_refused(capsys, copy, f"{shards.INDEX} is damaged")


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_file_that_was_cut_off_is_named(capsys: pytest.CaptureFixture[str], copy: Path, kept: int) -> None:
    path = copy / shards.SINGLE
    path.write_bytes(path.read_bytes()[:kept])
    assert_refused(capsys, copy, str(path), "damaged or was cut off")


def test_a_damaged_header_is_named(capsys: pytest.CaptureFixture[str], copy: Path) -> None:
    path = copy / shards.SINGLE
    content = bytearray(path.read_bytes())
    content[8:40] = b"x" * 32
    path.write_bytes(bytes(content))
    assert_refused(capsys, copy, str(path), "damaged or was cut off")


@pytest.mark.parametrize("family", ["llada", "dream", "gemma"])
def test_the_tokenizer_of_another_model_is_refused(
    capsys: pytest.CaptureFixture[str], originals: dict[str, Path], tmp_path: Path, family: str
) -> None:
    folder = Path(shutil.copytree(originals[family], tmp_path / "model"))
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["added_tokens"][-1]["id"] += 1000
    write_json(folder / "tokenizer.json", content)
    assert_refused(capsys, folder, "tokenizer")


def test_a_missing_tokenizer_is_refused(capsys: pytest.CaptureFixture[str], copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    assert_refused(capsys, copy, "has no tokenizer")


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("device", "cuda:7", "there is no device 'cuda:7'"),
        ("dtype", "fp12", "there is no dtype 'fp12'"),
        ("attention", "flash_attention_2", "has no attention 'flash_attention_2'"),
        ("quantization", "int3", "there is no quantization 'int3'"),
        ("quantization", "nf4", "needs a GPU"),
    ],
)
def test_settings_that_cannot_be_had_are_refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    copy: Path,
    setting: str,
    value: str,
    told: str,
) -> None:
    if setting == "quantization":
        monkeypatch.setenv("TENON_DEVICE", "cpu")
    monkeypatch.setenv(f"TENON_{setting.upper()}", value)
    assert_refused(capsys, copy, told)


def test_without_transformers_the_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, copy: Path
) -> None:
    monkeypatch.setattr(families, "REQUIRED", ("no_such_package", *families.REQUIRED))
    assert_refused(capsys, copy, "need no_such_package: run `pip install 'tenon-ls[models]'`, ")


def test_doctor_looks_at_a_checkpoint_without_loading_it(
    capsys: pytest.CaptureFixture[str], copy: Path
) -> None:
    def state() -> tuple[int, dict[str, str]]:
        code = cli.main(["doctor", "--json", "--model", str(copy)])
        return code, json.loads(capsys.readouterr().out)["model"]

    code, model = state()
    assert (code, model["location"]) == (0, str(copy))
    assert model["state"].startswith("files complete (0.0 GB, ")
    (copy / shards.SINGLE).unlink()
    code, model = state()
    assert (code, model["state"]) == (1, "unusable")
    assert "has no weights" in model["problem"]


def test_doctor_knows_what_would_be_fetched_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["doctor", "--json", "--model", "owner/nothing"]) == 1
    assert "TENON_OFFLINE" in capsys.readouterr().out
    monkeypatch.setenv("TENON_OFFLINE", "0")
    assert cli.main(["doctor", "--json", "--model", "owner/nothing"]) == 0
    assert "fetched at first use" in json.loads(capsys.readouterr().out)["model"]["state"]


def test_the_folder_of_a_checkpoint_is_its_path(capsys: pytest.CaptureFixture[str], copy: Path) -> None:
    assert cli.main(["model", "path", "--model", "./model"]) == 0
    assert capsys.readouterr().out == f"{copy}\n"
    assert cli.main(["model", "path", "--model", "owner/nothing"]) == 2
    assert "owner/nothing is not on this machine" in capsys.readouterr().err


def test_memory_that_runs_out_while_loading_is_told_in_one_sentence(
    copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")

    monkeypatch.setattr("tenon_engine.models.masked.model.load", load)
    assert_refused(capsys, copy, "memory of cpu ran out", "smaller checkpoint")
