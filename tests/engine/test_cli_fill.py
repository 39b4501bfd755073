"""`tenon fill` and `tenon` itself, as a user runs them: what is printed where, and the exit code."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tenon_engine.commands.show import show
from tenon_engine.wire import Candidate, FillResult, HoleFill

PROGRAM = "def area(r):\n    \n    return r * r * pi\n"


class Desk:
    """A folder with a file and a scripted model in it, and `tenon` run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("TENON_")}
        self.environ |= {
            "TENON_CONFIG": str(folder / "config.toml"),
            "TENON_HOME": str(folder / "home"),
            "TENON_OFFLINE": "1",
            "HF_HUB_CACHE": str(folder / "hub"),
        }
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self.environ["PYTHONPATH"] = os.pathsep.join(str(Path(path).absolute()) for path in paths if path)
        self.file("area.py", PROGRAM)
        self.script("pi = 3.14")

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def script(self, raw: str, **more: object) -> None:
        self.file("model.json", json.dumps({"raw": raw, **more}))

    def calls(self) -> list[dict[str, object]]:
        path = self.folder / "model.json.calls.jsonl"
        return (
            [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            if path.exists()
            else []
        )

    def tenon(self, *arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "tenon_engine", *arguments],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=120,
        )

    def fill(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return self.tenon("fill", *arguments, "--model", "scripted:model.json")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def assert_refused(done: subprocess.CompletedProcess[bytes], message: str) -> None:
    """Exit code 2, nothing on stdout, one line on stderr that says `message`."""
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (2, b"", 1), done.stderr.decode()
    assert lines[0].startswith("tenon: ")
    assert message in lines[0]


def test_the_fill_is_printed_exactly_and_nothing_else(desk: Desk) -> None:
    done = desk.fill("area.py:2:5")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"pi = 3.14", b"")


def test_the_model_is_given_both_sides_and_what_the_file_is(desk: Desk) -> None:
    desk.fill("area.py:2:5", "--candidates", "2", "--max-tokens", "9")
    (call,) = desk.calls()
    assert call["prefix"] == "def area(r):\n    "
    assert call["suffix"] == "\n    return r * r * pi\n"
    assert (call["path"], call["language"]) == ("area.py", "python")
    assert (call["candidates"], call["max_tokens"]) == (2, 9)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals of this kind")
def test_on_a_terminal_the_line_is_ended(desk: Desk) -> None:
    terminal, stdout = os.openpty()
    process = subprocess.run(
        [sys.executable, "-m", "tenon_engine", "fill", "area.py:2:5", "--model", "scripted:model.json"],
        cwd=desk.folder,
        env=desk.environ,
        stdout=stdout,
        timeout=120,
    )
    os.close(stdout)
    assert process.returncode == 0
    assert os.read(terminal, 1000) == b"pi = 3.14\r\n"
    os.close(terminal)


def test_the_line_ends_of_the_file_reach_the_fill_untranslated(desk: Desk) -> None:
    desk.file("area.py", PROGRAM.replace("\n", "\r\n"))
    desk.script("pi = 3.14\n    r = abs(r)")
    assert desk.fill("area.py:2:5").stdout == b"pi = 3.14\r\n    r = abs(r)"


def test_text_is_written_as_utf_8_whatever_the_locale(desk: Desk) -> None:
    desk.environ |= {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    desk.script("pi = 'π🚀'")
    assert desk.fill("area.py:2:5").stdout.decode() == "pi = 'π🚀'"


def test_json_has_exactly_the_promised_fields(desk: Desk) -> None:
    desk.file("area.py", "s = '🚀'; t = \n")
    desk.script("'x'", confidence=0.5)
    done = desk.fill("area.py:1:14", "--json")
    (line,) = done.stdout.decode().splitlines()
    answer = json.loads(line)
    assert set(answer) == {"text", "range", "confidence", "steps", "tokens", "ms", "model", "candidates"}
    assert set(answer["ms"]) == {"context", "denoise", "total"}
    position = {"line": 0, "character": 14}  # in UTF-16 units the emoji counts twice
    assert answer["range"] == {"start": position, "end": position}
    assert (answer["text"], answer["confidence"]) == ("'x'", 0.5)
    assert answer["candidates"] == [{"text": "'x'", "confidence": 0.5}]
    assert answer["model"] == "scripted:model.json"


def test_nothing_to_suggest_is_exit_code_3_and_one_line_on_stderr(desk: Desk) -> None:
    desk.script("return r * r * pi")  # only repeats what follows
    done = desk.fill("area.py:2:5")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode().startswith("tenon: nothing to suggest")
    assert len(done.stderr.decode().splitlines()) == 1


def test_nothing_to_suggest_is_said_in_json_too(desk: Desk) -> None:
    desk.script("")
    done = desk.fill("area.py:2:5", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["text"], answer["candidates"]) == (3, "", [])


def test_a_fill_can_be_shown_in_its_surroundings(desk: Desk) -> None:
    done = desk.fill("area.py:2:5", "--show")
    shown = done.stdout.decode()
    assert done.returncode == 0
    assert "    2 ┃     pi = 3.14\n" in shown
    assert "    1 │ def area(r):\n" in shown
    assert "scripted:model.json" in shown
    assert "\x1b" not in shown


def test_escape_sequences_of_a_file_are_not_sent_to_the_terminal(desk: Desk) -> None:
    desk.file("area.py", "a = '\x1b[2J'\nb = \n")
    assert b"\x1b" not in desk.fill("area.py:2:5", "--show").stdout


def test_a_trace_is_written_beside_the_answer(desk: Desk) -> None:
    done = desk.fill("area.py:2:5", "--trace", "out.html")
    assert (done.returncode, done.stdout) == (0, b"pi = 3.14")
    assert (desk.folder / "out.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_trace_that_cannot_be_written_is_one_line(desk: Desk) -> None:
    done = desk.fill("area.py:2:5", "--trace", "none/out.html")
    assert_refused(done, "none/out.html cannot be written: No such file or directory")
    assert desk.calls() == []


@pytest.mark.parametrize(
    ("place", "out", "message"),
    [
        ("area.py:2:5", "area.py", "no HTML page"),
        ("page.html:1:1", "./page.html", "is the file that is read"),
        ("area.py:2:5", "model.json", "no HTML page"),
        ("area.py:2:5", "folder", "Is a directory"),
        ("area.py:2:5", "", "Is a directory"),
    ],
)
def test_a_trace_never_overwrites_what_is_no_trace(desk: Desk, place: str, out: str, message: str) -> None:
    desk.file("page.html", PROGRAM)
    (desk.folder / "folder").mkdir()
    before = {path.name: path.read_bytes() for path in desk.folder.iterdir() if path.is_file()}
    assert_refused(desk.fill(place, "--trace", out), message)
    assert {path.name: path.read_bytes() for path in desk.folder.iterdir() if path.is_file()} == before


def test_an_empty_file_and_colons_in_its_name_are_fine(desk: Desk) -> None:
    desk.file("a:1:b.py", "")
    done = desk.fill("a:1:b.py:1:1")
    assert (done.returncode, done.stdout) == (0, b"pi = 3.14")


def test_the_alternatives_are_listed_below_the_fill() -> None:
    candidates = (Candidate("a + b", 0.75), Candidate("sum(\n\x1b[2J)", 0.25))
    console = Console(file=io.StringIO(), width=60)
    show(console, "add.py", "return ", "\n", FillResult((HoleFill(candidates),), "some-model"))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "    1 ┃ return a + b\n" in shown
    assert "\n 0.25 sum(⏎␛[2J)\nsome-model" in shown


def test_a_byte_order_mark_is_not_shown_to_the_model(desk: Desk) -> None:
    desk.file("area.py", b"\xef\xbb\xbfx = \n")
    done = desk.fill("area.py:1:6", "--json")
    assert desk.calls()[0]["prefix"] == "x = "
    assert json.loads(done.stdout)["range"]["start"] == {"line": 0, "character": 5}


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("big.py", b"value = 1\n" * 5_000_000, "big.py:2500000:10"),
        ("wide.py", b"x = [" + b"1, " * 350_000 + b"]", "wide.py:1:500000"),
    ],
    ids=["50 MB", "a line of 1 MB"],
)
def test_large_files_and_long_lines_are_filled(desk: Desk, name: str, content: bytes, place: str) -> None:
    desk.file(name, content)
    desk.script("0")
    done = desk.fill(place, "--show", "--trace", "out.html")
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout) < 20_000
    assert (desk.folder / "out.html").stat().st_size < 100_000


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (PROGRAM, "none.py:1:1", "none.py does not exist"),
        (PROGRAM, ".:1:1", "is a directory"),
        (PROGRAM, "area.py", "expected FILE:LINE:COL"),
        (PROGRAM, "area.py:2", "expected FILE:LINE:COL"),
        (PROGRAM, "area.py:0:1", "count from 1"),
        (PROGRAM, "area.py:9:1", "there is no line 9, the file has 4 lines"),
        (PROGRAM, "area.py:2:6", "column 6 is outside line 2, whose last column is 5"),
        (b"\x89PNG\r\n\x1a\n\x00", "area.py:1:1", "is a binary file"),
        (b"caf\xe9", "area.py:1:1", "is not UTF-8 text (byte 3 cannot be decoded)"),
    ],
)
def test_a_file_or_place_that_cannot_be_used_is_refused_on_one_line(
    desk: Desk, content: str | bytes, place: str, message: str
) -> None:
    desk.file("area.py", content)
    assert_refused(desk.fill(place), message)
    assert desk.calls() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-tokens", "0"), "--max-tokens must be a whole number from 1 to 1024, not 0"),
        (("--max-tokens", "few"), "--max-tokens must be a whole number"),
        (("--candidates", "0"), "must be a whole number from 1, not '0'"),
        (("--deadline-ms", "-5"), "must be a whole number from 1, not '-5'"),
        (("--temperature", "nan"), "must be 0 or a number from 0.01 to 100, not 'nan'"),
        (("--temperature", "1e-9"), "must be 0 or a number from 0.01 to 100"),
        (("--seed", "9223372036854775808"), "must be a whole number from 0 to 9223372036854775807"),
        (("--sampler", "nonsense"), "unknown sampler 'nonsense'"),
        (("--max-tokens", "\x9b\u202e\nfew"), "<U+009B><U+202E> few"),
        (("--seed", "x"), "--seed"),
        (("--json", "--show"), "not allowed with"),
        (("--colour",), "unrecognized arguments"),
    ],
)
def test_a_bad_flag_is_refused_on_one_line(desk: Desk, arguments: tuple[str, ...], message: str) -> None:
    assert_refused(desk.fill("area.py:2:5", *arguments), message)


@pytest.mark.parametrize("arguments", [(), ("fly",), ("fill",), ("--log-level", "loud", "doctor")])
def test_bad_usage_is_one_line(desk: Desk, arguments: tuple[str, ...]) -> None:
    assert_refused(desk.tenon(*arguments), "--help`")


@pytest.mark.parametrize("model", ["no-such-model", "scripted:none.json", "scripted:area.py"])
def test_a_model_that_cannot_be_used_is_refused_on_one_line(desk: Desk, model: str) -> None:
    assert_refused(desk.tenon("fill", "area.py:2:5", "--model", model), "")


def test_a_model_that_fails_is_one_line(desk: Desk) -> None:
    desk.script("", fail="the numbers went wrong")
    assert_refused(desk.fill("area.py:2:5"), "the numbers went wrong")


def test_missing_base_weights_without_network_are_one_line_with_the_ways_out(desk: Desk) -> None:
    assert_refused(desk.tenon("fill", "area.py:2:5"), "tenon model fetch")


def test_a_bad_setting_is_a_warning_and_the_fill_goes_on(desk: Desk) -> None:
    desk.file("config.toml", "[engine]\nthreads = 'many'\n")
    done = desk.fill("area.py:2:5")
    assert (done.returncode, done.stdout) == (0, b"pi = 3.14")
    assert b"tenon: warning: " in done.stderr
    assert b"engine.threads must be a whole number" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_answer_that_cannot_be_written_is_one_line(desk: Desk) -> None:
    with Path("/dev/full").open("wb") as full:
        done = desk.tenon("fill", "area.py:2:5", "--model", "scripted:model.json", stdout=full.fileno())
    assert (done.returncode, done.stderr) == (2, b"tenon: No space left on device\n")


@pytest.mark.skipif(sys.platform == "win32", reason="interrupts are sent in another way there")
def test_an_interrupt_ends_a_fill_quietly(desk: Desk) -> None:
    desk.script("", hang=True)
    os.mkfifo(desk.folder / "model.json.calls.jsonl")  # to be read as soon as the model was asked
    process = subprocess.Popen(
        [sys.executable, "-m", "tenon_engine", "fill", "area.py:2:5", "--model", "scripted:model.json"],
        cwd=desk.folder,
        env=desk.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A test runner started in the background ignores interrupts, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert desk.calls()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 130


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break in another way there")
def test_a_reader_that_went_away_is_no_error_to_talk_about(desk: Desk) -> None:
    for form in ((), ("--show",), ("--json",)):
        reader, writer = os.pipe()
        os.close(reader)
        done = desk.tenon("fill", "area.py:2:5", "--model", "scripted:model.json", *form, stdout=writer)
        os.close(writer)
        assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a shell and a device that is always full")
@pytest.mark.parametrize(
    ("place", "redirection", "expected"),
    [
        ("area.py:2:5", ">&-", (0, b"")),
        ("area.py:2:5", "2>&-", (0, b"pi = 3.14")),
        ("none.py:1:1", "2>&-", (2, b"")),
        ("none.py:1:1", "2>/dev/full", (2, b"")),
        ("", "2>/dev/full", (2, b"")),
    ],
)
def test_streams_that_are_closed_or_full_change_nothing_else(
    desk: Desk, place: str, redirection: str, expected: tuple[int, bytes]
) -> None:
    command = f"{sys.executable} -m tenon_engine fill {place} --model scripted:model.json {redirection}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=desk.folder, env=desk.environ, capture_output=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (*expected, b"")


def test_help_and_version_are_quick_to_say_and_import_no_torch(desk: Desk) -> None:
    code = """if True:
        import sys
        from tenon_engine.cli import main
        try:
            main(["--help"])
        finally:
            assert "torch" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", code], env=desk.environ, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    for command in (b"fill", b"model", b"eval", b"bench", b"doctor"):
        assert command in done.stdout
    assert desk.tenon("--version").stdout.startswith(b"tenon ")
