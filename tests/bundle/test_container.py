"""The archive: determined by its files, and no byte of it can change unseen."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from airlock.bundle import container
from airlock.errors import BundleError, InputError


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("first")
    (folder / "deep/b.bin").write_bytes(bytes(range(40)))
    (folder / "empty").touch()
    container.pack(folder, tmp_path / "archive.zip")
    return tmp_path / "archive.zip"


def unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    container.unpack(archive, folder)


def test_files_come_back_and_pack_to_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path / "out")
    assert (tmp_path / "out/deep/b.bin").read_bytes() == bytes(range(40))
    assert (tmp_path / "out/empty").read_bytes() == b""
    container.pack(tmp_path / "out", tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_every_flipped_byte_is_found(archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    for place in range(len(data)):
        archive.write_bytes(data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :])
        with pytest.raises(BundleError):
            unpack(archive, tmp_path / f"flip{place}")


def test_a_changed_member_is_named(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive.read_bytes().replace(b"first", b"First"))
    with pytest.raises(BundleError, match=r"a\.txt was changed"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_cut_or_extended_archive_is_found(archive: Path, tmp_path: Path, cut: int) -> None:
    data = archive.read_bytes()
    for damaged in (data[:-cut], data + b"\0" * cut, b"\0" * cut + data):
        archive.write_bytes(damaged)
        with pytest.raises(BundleError):
            unpack(archive, tmp_path / f"{len(damaged)}{damaged[:1].hex()}")


@pytest.mark.parametrize("name", ["../out.txt", "/etc/out.txt", "a/../../out.txt", "a//b", "./a"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(BundleError):
        unpack(tmp_path / "bad.zip", tmp_path / "inner/out")
    assert not (tmp_path / "inner/out.txt").exists() and not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    "names",
    [
        *(
            ["d\u0430ta/x"],
            ["data\u200b/x"],
            ["e\u0301"],
            ["\u202ex"],
            ["a\\b"],
            ["c:x"],
            ["x\ny"],
            ["x."],
            ["x "],
        ),
        *(["README.md", "readme.md"], ["\u212a"], ["a" * 256], [""], ["a/"]),
    ],
    ids=ascii,
)
def test_names_that_another_reader_takes_for_others_are_refused(
    tmp_path: Path, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the `data` that is checked there could lie a second one, which looks the same to whoever unpacks it."""
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        for name in sorted(names):
            member = zipfile.ZipInfo(name)
            member.create_system, member.external_attr = container._UNIX, container._MODE
            archive.writestr(member, "")
    with pytest.raises(BundleError, match="list of files"):
        unpack(tmp_path / "bad.zip", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir()), "nothing is written"
    monkeypatch.setattr(container, "is_plain", lambda name: True)
    if len(names) == 1 and len(names[0]) < 256 and not names[0].endswith("/") and names[0]:
        unpack(tmp_path / "bad.zip", tmp_path / "control")
        assert (tmp_path / "control" / names[0]).is_file(), "the control: nothing else would refuse it"


def test_what_could_not_be_unpacked_is_not_packed(tmp_path: Path) -> None:
    for names in (["\u00e9.py"], ["A.py", "a.py"]):
        folder = tmp_path / ascii(names[0])
        folder.mkdir()
        for name in names:
            (folder / name).touch()
        with pytest.raises(BundleError, match=r"ASCII|capital"):
            container.pack(folder, tmp_path / "made.zip")
    assert not (tmp_path / "made.zip").exists()


def test_links_and_devices_are_no_members(tmp_path: Path) -> None:
    """A member that says of itself that it is a link is not made one, and the archive is not ours."""
    for kind in (0o120777, 0o060644, 0o010644, 0o100755, 0o104755):
        with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
            member = zipfile.ZipInfo("a.txt")
            member.create_system, member.external_attr = container._UNIX, kind << 16
            archive.writestr(member, "/etc/passwd")
        with pytest.raises(BundleError, match="outside of its files"):
            unpack(tmp_path / "bad.zip", tmp_path / f"{kind:o}")
        assert not (tmp_path / f"{kind:o}/a.txt").is_symlink()


def test_members_that_share_their_bytes_are_refused(tmp_path: Path, archive: Path) -> None:
    """A bomb without compression: many names for the same bytes."""
    with zipfile.ZipFile(archive, "a") as made:
        first = made.getinfo("deep/b.bin")
        for number in range(50):
            member = zipfile.ZipInfo(f"copy{number}")
            for name in ("header_offset", "CRC", "file_size", "compress_size", "compress_type"):
                setattr(member, name, getattr(first, name))
            member.create_system, member.external_attr = container._UNIX, container._MODE
            made.filelist.append(member)
            made.NameToInfo[member.filename] = member
        made._didModify = True
    with pytest.raises(BundleError):
        unpack(archive, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_compressed_members_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", b"\0" * 10_000_000)
    with pytest.raises(BundleError):
        unpack(tmp_path / "bomb.zip", tmp_path / "out")
    assert not (tmp_path / "out/zeros").exists()


def test_a_missing_file_is_a_wrong_question(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        unpack(tmp_path / "nothing.zip", tmp_path / "out")
