"""Bits are compared between like machines only, so machines that compute differently must not look alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from airlock.run import machine

BLOCK = (
    "processor\t: 0\ncpu family\t: {family}\nmodel\t\t: 17\nmodel name\t: "
    "AMD EPYC\nflags\t\t: fpu sse2 {flags}\n\n"
)


def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> object:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    return machine.platform_facts()["processor"]


def test_virtual_processors_of_one_name_differ_by_family_and_vector_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = seen(tmp_path, monkeypatch, BLOCK.format(family=25, flags="avx2 fma") * 2)
    assert old == "AMD EPYC, cpu family 25, model 17, avx2 fma"
    assert seen(tmp_path, monkeypatch, BLOCK.format(family=25, flags="avx512f fma avx2") * 2) != old
    assert seen(tmp_path, monkeypatch, BLOCK.format(family=26, flags="avx2 fma")) != old
    assert seen(tmp_path, monkeypatch, BLOCK.format(family=25, flags="fma avx2 rdrand")) == old


def test_where_nothing_is_told_about_the_processor_there_are_facts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(seen(tmp_path, monkeypatch, "processor\t: 0\nBogoMIPS\t: 50.00\n"), str)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "missing")
    assert machine.platform_facts()["machine"]
