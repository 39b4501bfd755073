"""Which files are never read nor filled, in real folders, and compared with what git says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from tenon_lsp.exclude import Exclusions, disabled_by, not_patterns

SECRET_NAMES = (
    *(".env", ".env.local", ".env.example", "prod.env", ".envrc", ".ENV", "secrets.yaml", "secrets.py"),
    *(".netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", "credentials", "credentials.json"),
    *("id_rsa", "id_ed25519", "server.pem", "Server.PEM", "tls.key", "site.crt", "vault.kdbx", "a.p12"),
    *("prod.tfvars", "terraform.tfstate", "client_secret_12.json", ".bash_history"),
    *(".ssh/config", ".aws/config", ".kube/config", ".docker/config.json", ".git/config", "x/.gnupg/deep/a"),
)
ORDINARY_NAMES = (
    *("a.py", "env.py", "environment.py", ".env/lib/a.py", "credentials.py", "secretsanta.py", "key.py"),
    *("id_rsa_tools.py", "certificates.md", "config.json", ".git/COMMIT_EDITMSG", "my.pem/a.py"),
)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_u47_a_secret_is_never_read(tmp_path: Path, name: str) -> None:
    assert "secrets" in Exclusions([tmp_path], []).reason(tmp_path / name)


@pytest.mark.parametrize("name", ORDINARY_NAMES)
def test_an_ordinary_file_may_be_read(tmp_path: Path, name: str) -> None:
    assert Exclusions([tmp_path], []).reason(tmp_path / name) == ""


def test_u47_a_path_in_an_ignore_file_is_never_read(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "notes/\n")
    exclusions = Exclusions([tmp_path], [])
    assert str(tmp_path / ".gitignore") in exclusions.reason(tmp_path / "notes" / "a.md")
    assert exclusions.reason(tmp_path / "a.md") == ""


def test_u48_an_exclude_list_of_ones_own_keeps_the_built_in_one(tmp_path: Path) -> None:
    for patterns in ([], ["*.log"]):
        assert Exclusions([tmp_path], patterns).reason(tmp_path / ".env")


def test_u48_a_pattern_with_an_exclamation_mark_allows_just_the_files_it_matches(tmp_path: Path) -> None:
    exclusions = Exclusions([tmp_path], ["!**/.env.example"])
    assert exclusions.reason(tmp_path / ".env.example") == ""
    assert exclusions.reason(tmp_path / "deep" / ".env.example") == ""
    assert exclusions.reason(tmp_path / ".env")


def test_the_users_permission_holds_for_files_that_git_ignores(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "generated/\n.env*\n")
    exclusions = Exclusions([tmp_path], ["!generated/api.py", "!.env.example"])
    assert exclusions.reason(tmp_path / "generated" / "api.py") == ""
    assert exclusions.reason(tmp_path / ".env.example") == ""
    assert exclusions.reason(tmp_path / "generated" / "other.py")


def test_an_ignore_file_cannot_allow_a_secret(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "!.env\n")
    assert Exclusions([tmp_path], []).reason(tmp_path / ".env")


def test_of_the_users_patterns_the_last_that_matches_decides(tmp_path: Path) -> None:
    allowed_again = Exclusions([tmp_path], ["private/", "!private/readme.md"])
    assert allowed_again.reason(tmp_path / "private" / "readme.md") == ""
    assert allowed_again.reason(tmp_path / "private" / "deep" / "a.md")
    assert Exclusions([tmp_path], ["!private/readme.md", "private/"]).reason(
        tmp_path / "private" / "readme.md"
    )


def test_the_users_patterns_begin_at_the_workspace_folder(tmp_path: Path) -> None:
    exclusions = Exclusions([tmp_path / "one", tmp_path / "two"], ["/private"])
    for folder in ("one", "two"):
        assert "/private" in exclusions.reason(tmp_path / folder / "private" / "a.py")
        assert exclusions.reason(tmp_path / folder / "sub" / "private" / "a.py") == ""


def test_outside_all_folders_patterns_match_by_name_and_secrets_stay_secret(tmp_path: Path) -> None:
    exclusions = Exclusions([tmp_path / "workspace"], ["*.log"])
    assert exclusions.reason(tmp_path / "elsewhere" / "a.log")
    assert exclusions.reason(tmp_path / "elsewhere" / ".env")
    assert exclusions.reason(tmp_path / "elsewhere" / "a.py") == ""


def test_without_folders_the_ignore_files_of_the_files_own_repository_hold(tmp_path: Path) -> None:
    write(tmp_path / "outer" / ".gitignore", "*.md\n")
    write(tmp_path / "outer" / "inner" / ".git" / "HEAD", "")
    write(tmp_path / "outer" / "inner" / ".gitignore", "*.log\n")
    exclusions = Exclusions([], [])
    assert exclusions.reason(tmp_path / "outer" / "inner" / "sub" / "a.log")
    assert exclusions.reason(tmp_path / "outer" / "inner" / "a.md") == ""
    assert exclusions.reason(tmp_path / "outer" / "a.md") == ""


def test_a_folder_within_a_repository_obeys_the_ignore_files_above_it(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", "")
    write(tmp_path / ".gitignore", "*.log\n")
    assert Exclusions([tmp_path / "package"], []).reason(tmp_path / "package" / "a.log")


def test_a_nested_ignore_file_speaks_last_below_its_folder(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "*.log\n/top.txt\n")
    write(tmp_path / "sub" / ".gitignore", "!keep.log\n*.txt\n")
    exclusions = Exclusions([tmp_path], [])
    assert exclusions.reason(tmp_path / "keep.log")
    assert exclusions.reason(tmp_path / "sub" / "keep.log") == ""
    assert exclusions.reason(tmp_path / "sub" / "other.log")
    assert exclusions.reason(tmp_path / "sub" / "deep" / "a.txt")
    assert exclusions.reason(tmp_path / "other" / "top.txt") == ""


def test_a_change_of_an_ignore_file_holds_at_once(tmp_path: Path) -> None:
    exclusions = Exclusions([tmp_path], [])
    path = tmp_path / "a.log"
    assert exclusions.reason(path) == ""
    write(tmp_path / ".gitignore", "*.log\n")
    assert exclusions.reason(path)
    write(tmp_path / ".gitignore", "*.logs\n")
    assert exclusions.reason(path) == ""
    write(tmp_path / ".gitignore", "*.log\n")
    assert exclusions.reason(path)
    (tmp_path / ".gitignore").unlink()
    assert exclusions.reason(path) == ""


def test_a_link_to_an_excluded_file_is_excluded(tmp_path: Path) -> None:
    write(tmp_path / ".env", "TOKEN=abc123secret\n")
    (tmp_path / "notes.txt").symlink_to(".env")
    (tmp_path / "round").symlink_to("round")
    exclusions = Exclusions([tmp_path], [])
    assert exclusions.reason(tmp_path / "notes.txt")
    assert exclusions.reason(tmp_path / "round") == ""


def test_rules_hold_in_a_workspace_that_is_reached_through_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real" / ".gitignore", "/build\n")
    (tmp_path / "link").symlink_to("real")
    for folder in ("real", "link"):
        exclusions = Exclusions([tmp_path / folder], ["/private", "!/.env.example"])
        for name in ("real", "link"):
            assert exclusions.reason(tmp_path / name / "private" / "a.py")
            assert exclusions.reason(tmp_path / name / "build" / "a.py")
        assert exclusions.reason(tmp_path / folder / ".env.example") == ""


def test_dots_in_a_path_do_not_lead_around_a_rule(tmp_path: Path) -> None:
    exclusions = Exclusions([tmp_path], ["/private"])
    assert exclusions.reason(tmp_path / "src" / ".." / "private" / "a.py")


@pytest.mark.parametrize(
    "content", ["\ufeff*.log\n", "*.log\r\n", "*.log  \n", "[\nfoo\\\n*.log", "#*\n*.log\n"]
)
def test_ignore_files_are_read_as_git_reads_them(tmp_path: Path, content: str) -> None:
    (tmp_path / ".gitignore").write_bytes(content.encode())
    assert Exclusions([tmp_path], []).reason(tmp_path / "a.log")


def test_an_ignore_file_that_is_none_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".gitignore").write_bytes(b"\xff\xfe\x00*\n")
    os.mkfifo(tmp_path / "sub" / "pipe")
    assert Exclusions([tmp_path], ["", "#", "["]).reason(tmp_path / "sub" / "a.py") == ""


def test_u36_a_glob_switches_suggestions_off(tmp_path: Path) -> None:
    globs = ["**/*.cfg", "docs/**", "!docs/keep.md"]
    assert disabled_by(globs, tmp_path / "sub" / "a.cfg", [tmp_path]) == "**/*.cfg"
    assert disabled_by(globs, tmp_path / "docs" / "a.md", [tmp_path]) == "docs/**"
    assert disabled_by(globs, tmp_path / "docs" / "keep.md", [tmp_path]) == ""
    assert disabled_by(globs, tmp_path / "a.py", [tmp_path]) == ""
    assert disabled_by(globs, tmp_path / "elsewhere.cfg", [tmp_path / "workspace"]) == "**/*.cfg"
    assert disabled_by([], tmp_path / "a.cfg", [tmp_path]) == ""


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", range(12))
def test_git_ignores_the_same_files(tmp_path: Path, seed: int) -> None:
    git(tmp_path, "init", "--quiet")
    files = make_a_tree(tmp_path, Random(seed))
    exclusions = Exclusions([tmp_path], [])
    ours = {file for file in files if exclusions.reason(tmp_path / file)}
    assert ours == ignored_by_git(tmp_path, files)


FILE_NAMES = ("a", "b", "c.log", "a b", "d.e")
PATTERN_PARTS = (*FILE_NAMES, "*", "?", "*.log", "[ab]", "[!a]", "**", "a*", "\\a", "#x")


def make_a_tree(top: Path, random: Random) -> list[str]:
    """Files in folders that have ignore files, all at random; returns the files."""
    for folder in random.sample((".", "a", "b", "a/b", "b/a/a b", "d.e"), k=3):
        write(top / folder / ".gitignore", "".join(f"{a_pattern(random)}\n" for _ in range(3)))
    places = ["/".join(random.choices(FILE_NAMES, k=random.randint(1, 4))) for _ in range(80)]
    # A path may be a file or a folder: the first one to be made wins.
    return sorted({place for place in places if made(top / place)})


def a_pattern(random: Random) -> str:
    parts = "/".join(random.choices(PATTERN_PARTS, k=random.choice((1, 1, 2, 3))))
    start = random.choice(("", "", "", "!", "/", "!/", "**/", "#"))
    return start + parts + random.choice(("", "", "", "/", "/**", "/*", " ", "\\ "))


def made(path: Path) -> bool:
    """Whether the file could be made: no part of its path is a file, itself is no folder."""
    try:
        write(path, "")
    except OSError:
        return False
    return True


def ignored_by_git(top: Path, files: list[str]) -> set[str]:
    """Of the files, those that git ignores."""
    answer = git(top, "check-ignore", "--stdin", "-z", given="\0".join(files))
    return set(answer.split("\0")) - {""}


def git(top: Path, *arguments: str, given: str = "") -> str:
    """What git prints; it sees no configuration but the repository's own."""
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *arguments],
        cwd=top,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def write(path: Path, text: str) -> None:
    """A file with this text, in folders that are made for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("bad", ["[z-a]", "[a-\\]", "!", "\\", "["])
def test_a_line_that_is_no_pattern_is_left_out_and_the_others_hold(tmp_path: Path, bad: str) -> None:
    write(tmp_path / ".gitignore", f"build/\n{bad}\n*.log\n")
    exclusions = Exclusions([tmp_path], ["private/", bad, "*.tmp"])
    for name in ("build/a", "a.log", "private/a", "a.tmp"):
        assert exclusions.reason(tmp_path / name)
    assert exclusions.reason(tmp_path / "a.py") == ""
    assert disabled_by([bad, "*.cfg"], tmp_path / "a.cfg", [tmp_path]) == "*.cfg"
    assert not_patterns(["private/", bad, "", "# a comment"]) == [bad]


def test_what_is_no_file_here_is_excluded_by_its_name(tmp_path: Path) -> None:
    exclusions = Exclusions([tmp_path], ["private/", "!.env.example"])
    assert exclusions.reason_by_name(Path("/elsewhere/.env"))
    assert exclusions.reason_by_name(Path("/elsewhere/private/a.py"))
    assert exclusions.reason_by_name(Path("/elsewhere/.env.example")) == ""
    assert exclusions.reason_by_name(Path("/Untitled-1")) == ""
