"""Keys as they are kept: entries, files, folders of files, their ends, and the list of those revoked."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

import pytest

from gateway.keys import ApiKey, end_of, read_keys, read_revoked, readable_revoked
from gateway.secrets import SecretError, key_digest
from tests.gateway.builders import key_line

PLAIN = "hm-a-plain-key-that-is-long-enough"
LAST_DAY = datetime(2027, 1, 1, tzinfo=UTC).timestamp()


def digests(entry: str) -> list[bytes]:
    return [key.digest for key in read_keys(entry)]


def refusal(entry: str) -> str:
    with pytest.raises(SecretError) as error:
        list(read_keys(entry))
    return str(error.value)


def test_keys_are_kept_as_digests(tmp_path):
    """A file may hold keys or digests, one a line, with comments: two to rotate."""
    path = tmp_path / "keys"
    path.write_text(f"# acme\n\n{PLAIN}\n{key_line('other-key')}\n")
    assert digests(f"file:{path}") == [key_digest(PLAIN), key_digest("other-key")]
    assert digests(key_line("third")) == [key_digest("third")]
    assert key_digest("abc") == sha256(b"abc").digest()


@pytest.mark.parametrize("entry", ["sk-live-CANARY-91", "sha256:abc", "file:/nowhere/CANARY", "env:KEY", ""])
def test_a_key_that_is_none_is_refused_without_repeating_it(entry):
    """Somebody will paste the key itself."""
    assert "sk-live" not in refusal(entry)


@pytest.mark.parametrize("line", ["short-CANARY", "sha256:CANARY", f"{PLAIN} expires=CANARY-never"])
def test_a_bad_line_is_named_by_its_number_and_not_repeated(line, tmp_path):
    """Where to look, in a file that is a secret."""
    path = tmp_path / "keys"
    path.write_text(f"# first\n{line}\n")
    told = refusal(f"file:{path}")
    assert told.startswith(f"{path}:2: ")
    assert "CANARY" not in told.removeprefix(str(path))
    assert PLAIN not in told


def test_a_file_without_keys_is_a_mistake(tmp_path):
    """Comments only."""
    (tmp_path / "keys").write_text("# none yet\n")
    assert "holds no key" in refusal(f"file:{tmp_path / 'keys'}")


def test_a_folder_is_read_as_kubernetes_mounts_a_secret(tmp_path):
    """Every file counts; `..data`, the folder behind it and hidden files do not count again."""
    behind = tmp_path / "..2026_11_30"
    behind.mkdir()
    (tmp_path / "..data").symlink_to(behind.name)
    for name, key in (("old", "first"), ("new", "second")):
        (behind / name).write_text(key_line(key) + "\n")
        (tmp_path / name).symlink_to(f"..data/{name}")
    (tmp_path / ".swp").write_text("not a key")
    assert digests(f"file:{tmp_path}") == [key_digest("second"), key_digest("first")]


def test_a_folder_without_files_is_a_mistake(tmp_path):
    """A Secret that was not mounted must not look like a tenant without keys."""
    assert "holds no key" in refusal(f"file:{tmp_path}")


def test_a_folder_that_cannot_be_read_is_a_mistake(tmp_path, monkeypatch):
    """With its path and the reason."""

    def deny(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.iterdir", deny)
    assert refusal(f"file:{tmp_path}") == f"cannot read {tmp_path}: Permission denied"


@pytest.mark.parametrize(
    ("when", "unix"),
    [
        ("2026-12-31", LAST_DAY),
        ("2026-12-31T12:00Z", LAST_DAY - 12 * 3600),
        ("2026-12-31T12:00:30+02:00", LAST_DAY - 14 * 3600 + 30),
    ],
)
def test_a_key_may_end(when, unix, tmp_path):
    """A day lasts until its midnight in UTC; a moment says its zone. In the configuration and in files alike."""
    assert list(read_keys(f"{key_line('k')} expires={when}")) == [ApiKey(key_digest("k"), unix)]
    path = tmp_path / "keys"
    path.write_text(f"{PLAIN}   expires={when}\n{key_line('k')}\n")
    assert list(read_keys(f"file:{path}")) == [ApiKey(key_digest(PLAIN), unix), ApiKey(key_digest("k"))]


def test_an_end_of_a_whole_file_holds_where_a_line_says_nothing(tmp_path):
    """A line of its own is nearer to the key."""
    path = tmp_path / "keys"
    path.write_text(f"{PLAIN}\n{key_line('k')} expires=2026-12-31\n")
    ends = [key.expires_at for key in read_keys(f"file:{path} expires=2027-06-30")]
    assert ends == [end_of("2027-06-30"), LAST_DAY]


@pytest.mark.parametrize(
    "when",
    [
        "0001-01-01T00:00+14:00",
        "9999-12-31T23:59-14:00",
        "",
        "tomorrow",
        "2026-13-01",
        "2026-12-31T12:00",
        "9999-12-31",
        "31.12.2026",
        "1767225600",
    ],
)
def test_a_time_that_is_none_is_a_mistake(when):
    """A moment without a zone is one of twenty-four."""
    assert "2026-12-31T12:00Z" in refusal(f"{key_line('k')} expires={when}")


@pytest.mark.parametrize("word", ["changeme", "sk-1234", "EMPTY", "example"])
def test_a_key_that_stands_in_examples_is_refused(word, tmp_path):
    """G1: as a digest, and in a file."""
    assert "homing keys mint" in refusal(key_line(word))
    path = tmp_path / "keys"
    path.write_text(word.ljust(24, "-"))
    if word in ("changeme", "example"):
        assert "comes from an example" in refusal(f"file:{path}")


def test_the_list_of_revoked_keys_is_digests_with_remarks(tmp_path):
    """An empty list is one too."""
    path = tmp_path / "revoked"
    path.write_text("")
    assert read_revoked(f"file:{path}") == frozenset()
    path.write_text(f"# gone\n{key_line('a')} 2026-11-30 left the company\n\n{key_line('b')}\n")
    assert read_revoked(f"file:{path}") == {key_digest("a"), key_digest("b")}


@pytest.mark.parametrize(("reference", "told"), [("env:X", "given as file:PATH"), ("file:/nowhere/r", "cannot read")])
def test_a_list_that_is_not_there_is_a_mistake(reference, told):
    """It would mean that nothing is revoked."""
    with pytest.raises(SecretError, match=told):
        read_revoked(reference)


def test_a_bad_line_in_the_list_is_named(tmp_path):
    """By its number."""
    path = tmp_path / "revoked"
    path.write_text(f"{key_line('a')}\nCANARY\n")
    with pytest.raises(SecretError, match=f"{path}:2: a revoked key is written sha256:HEX") as error:
        read_revoked(f"file:{path}")
    assert "CANARY" not in str(error.value)


@pytest.mark.parametrize("ends", ["\n", "\r\n", ""])
def test_a_file_written_on_windows_has_the_same_keys(ends, tmp_path):
    """A mark of the byte order at the start, CRLF, or no end of the last line; else a key opens nothing, in silence,
    and a revoked one goes on to open."""
    written = b"\xef\xbb\xbf" + f"{key_line('a')}\n{PLAIN}{ends}".replace("\n", ends or "\n").encode()
    (tmp_path / "keys").write_bytes(written)
    assert digests(f"file:{tmp_path / 'keys'}") == [key_digest("a"), key_digest(PLAIN)]
    (tmp_path / "revoked").write_bytes(b"\xef\xbb\xbf" + f"{key_line('a')}{ends}".encode())
    assert read_revoked(f"file:{tmp_path / 'revoked'}") == {key_digest("a")}
    assert readable_revoked(f"file:{tmp_path / 'revoked'}") == {key_digest("a")}


@pytest.mark.parametrize(
    "line",
    [
        f"{PLAIN} # a remark", f"acme: {PLAIN}", f'"{PLAIN}" # x', f"{PLAIN}é", f"{PLAIN}\x00", f"{PLAIN}\tx",
        f"sha256 :{'0' * 64}", f"sha256={'0' * 64}", f"sha256-{'0' * 64}", f"SHA256:{'0' * 63}",
    ],
)  # fmt: skip
def test_what_no_client_can_send_is_no_key(line, tmp_path):
    """It would be read as a key that nobody has, and the one that was meant would open nothing."""
    (tmp_path / "keys").write_text(f"{line}\n", encoding="utf-8")
    told = refusal(f"file:{tmp_path / 'keys'}")
    assert told.startswith(f"{tmp_path / 'keys'}:1: ")
    assert PLAIN not in told


def test_a_file_in_utf_16_is_refused(tmp_path):
    """As a shell of Windows writes it."""
    (tmp_path / "keys").write_bytes(PLAIN.encode("utf-16"))
    assert "visible ASCII" in refusal(f"file:{tmp_path / 'keys'}")


def test_the_name_of_the_digest_may_be_in_capitals(tmp_path):
    """Tools print it so; taken for a key itself it would open nothing."""
    shout = key_line("a").replace("sha256", "SHA256")
    (tmp_path / "keys").write_text(shout)
    assert digests(shout) == digests(f"file:{tmp_path / 'keys'}") == [key_digest("a")]
    assert read_revoked(f"file:{tmp_path / 'keys'}") == readable_revoked(f"file:{tmp_path / 'keys'}")
