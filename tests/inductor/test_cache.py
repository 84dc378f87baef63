"""The C toolchain and its cache, with everything that can go wrong around it."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from minipt2.config import config
from minipt2.errors import BackendError, CompilerNotFound
from minipt2.inductor import cache

C = "int answer(void) { return %d; }\n"


@pytest.fixture
def fresh(tmp_path):
    """An empty cache folder, and no libraries remembered by this process."""
    loaded = dict(cache._loaded)
    cache._loaded.clear()
    with config.patch(cache_dir=str(tmp_path / "cache"), disk_cache=True):
        yield tmp_path / "cache"
    cache._loaded.clear()
    cache._loaded.update(loaded)


def answer(n):
    return cache.compile_c(C % n).answer()


def no_compiler(monkeypatch):
    def refuse(units):
        raise AssertionError("compiled although it was in the cache")
    monkeypatch.setattr(cache, "_build", refuse)


def test_compiles_once_and_loads_from_disk(fresh, monkeypatch):
    assert answer(41) == 41
    files = list(fresh.glob("*.so"))
    assert len(files) == 1 and not list(fresh.glob("*.tmp")) and not list(fresh.glob("*.lock"))
    cache._loaded.clear()
    no_compiler(monkeypatch)
    assert answer(41) == 41


def test_several_units_link_together(fresh):
    library = cache.compile_c(["int part(void) { return 5; }", "int part(void); int whole(void) { return part() + 1; }"])
    assert library.whole() == 6


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_damaged_file_is_made_again(fresh, damage):
    answer(7)
    file, = fresh.glob("*.so")
    data = bytearray(file.read_bytes())
    file.unlink()
    if damage == "truncate":
        data = data[: len(data) // 2]
    elif damage == "flip":
        data[len(data) // 2] ^= 1
    else:
        data = b""
    file.write_bytes(bytes(data))
    cache._loaded.clear()
    assert answer(7) == 7
    assert cache._unseal(file) is not None


def test_files_that_changed_places_are_made_again(fresh):
    """A sound library under another's name has other functions."""
    answer(7)
    cache.compile_c("int other(void) { return 8; }")
    a, b = fresh.glob("*.so")
    contents = b.read_bytes(), a.read_bytes()
    for file, content in zip((a, b), contents):
        file.unlink()  # what is loaded stays as it was
        file.write_bytes(content)
    cache._loaded.clear()
    assert answer(7) == 7 and cache.compile_c("int other(void) { return 8; }").other() == 8


def test_flags_and_text_are_part_of_the_name(fresh, monkeypatch):
    answer(1)
    answer(2)
    cache._loaded.clear()
    monkeypatch.setattr(cache, "FLAGS", (*cache.FLAGS, "-DX"))
    answer(1)
    assert len(list(fresh.glob("*.so"))) == 3


@pytest.mark.skipif(os.getuid() == 0, reason="root writes anywhere")
def test_read_only_folder(fresh):
    fresh.mkdir()
    fresh.chmod(0o500)
    assert answer(3) == 3
    assert not list(fresh.glob("*"))


def test_no_private_folder_where_none_is_needed(fresh, monkeypatch):
    """A process that is killed would leave it."""
    monkeypatch.setattr(cache, "_private_folder", lambda: pytest.fail("made a folder for nothing"))
    assert answer(13) == 13


def test_folder_that_cannot_exist(fresh, tmp_path):
    (tmp_path / "file").write_text("")
    with config.patch(cache_dir=str(tmp_path / "file" / "cache")):
        assert answer(4) == 4


def test_folder_others_may_write_is_not_trusted(fresh):
    fresh.mkdir()
    fresh.chmod(0o777)
    assert cache.folder() != fresh


def test_full_disk(fresh, monkeypatch):
    write = Path.write_bytes

    def full(self, data):
        if fresh in self.parents:
            raise OSError(28, "No space left on device")
        return write(self, data)
    monkeypatch.setattr(Path, "write_bytes", full)
    assert answer(5) == 5
    cache.store_entry("k", {"a": 1})


def test_no_compiler(fresh, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(CompilerNotFound, match="install gcc"):
        cache.compile_c(C % 9)
    with config.patch(cc="no-such-compiler"), pytest.raises(CompilerNotFound, match="no-such-compiler"):
        cache.find_compiler()


def test_rejected_code_says_what_the_compiler_said(fresh):
    with pytest.raises(BackendError, match="nonsense") as caught:
        cache.compile_c("nonsense!")
    kept = str(caught.value).split("kept as ")[1].split(")")[0]
    assert Path(kept).read_text() == "nonsense!"


def test_two_processes_at_once(fresh):
    program = ("from minipt2.config import config; from minipt2.inductor import cache; import sys\n"
               "config.cache_dir = sys.argv[1]\nprint(cache.compile_c('int answer(void) { return 11; }').answer())")
    running = [subprocess.Popen([sys.executable, "-c", program, str(fresh)], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [p.communicate()[0].strip() for p in running] == ["11", "11"]
    assert len(list(fresh.glob("*.so"))) == 1


def test_two_threads_at_once(fresh):
    results = []
    threads = [threading.Thread(target=lambda: results.append(answer(12))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [12] * 4


def test_openmp_is_torchs_own(fresh):
    library = cache.compile_c("#include <omp.h>\nint threads(void) { return omp_get_max_threads(); }")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert library.threads() == 1
    finally:
        torch.set_num_threads(before)
    maps = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "gomp" in line}
    assert len(maps) == 1


def test_entries(fresh):
    assert cache.load_entry("missing") is None
    cache.store_entry("key", {"python": "x = 1", "c": ["int a;"]})
    assert cache.load_entry("key") == {"python": "x = 1", "c": ["int a;"]}
    (fresh / "key.json").write_bytes(b"garbage")
    assert cache.load_entry("key") is None
    with config.patch(disk_cache=False):
        cache.store_entry("other", {})
        assert cache.load_entry("other") is None
    assert not (fresh / "other.json").exists()


KEYS = [cache.digest(str(n)) for n in range(4)]
MEGABYTE = {"text": "x" * 700_000}


def used_long_ago(folder, *ages):
    """Make the files of the first keys look last used that many seconds ago."""
    for key, age in zip(KEYS, ages):
        if (folder / f"{key}.json").exists():
            os.utime(folder / f"{key}.json", (time.time() - age,) * 2)


def test_what_was_used_longest_ago_goes_first(fresh):
    with config.patch(cache_megabytes=2):
        cache.store_entry(KEYS[0], MEGABYTE)
        cache.store_entry(KEYS[1], MEGABYTE)
        (fresh / "notes.txt").write_bytes(bytes(3 << 20))  # not ours
        os.utime(fresh / "notes.txt", (0, 0))
        used_long_ago(fresh, 9000, 8000)
        assert cache.load_entry(KEYS[0]) == MEGABYTE  # used now
        cache.store_entry(KEYS[2], MEGABYTE)
        assert (fresh / "notes.txt").exists()
        assert [cache.load_entry(k) is not None for k in KEYS[:3]] == [True, False, True]
        used_long_ago(fresh, 10, 10, 10)
        cache.store_entry(KEYS[3], MEGABYTE)  # nothing that was used just now is removed
        assert cache.load_entry(KEYS[0]) == MEGABYTE


def test_files_that_another_process_removes_meanwhile(fresh, monkeypatch):
    scandir = os.scandir

    def removed(path):
        entries = list(scandir(path))
        for entry in entries:
            os.unlink(entry.path)
        return entries

    with config.patch(cache_megabytes=1):
        cache.store_entry(KEYS[0], MEGABYTE)
        used_long_ago(fresh, 9000)
        monkeypatch.setattr(cache.os, "scandir", removed)
        cache.store_entry(KEYS[1], MEGABYTE)
        monkeypatch.undo()
        cache.store_entry(KEYS[2], MEGABYTE)
    assert cache.load_entry(KEYS[0]) is None and cache.load_entry(KEYS[2]) == MEGABYTE


def test_the_size_of_the_cache_is_no_part_of_its_keys():
    before = config.identity()
    with config.patch(cache_megabytes=7):
        assert config.identity() == before
    with config.patch(fusion=False):
        assert config.identity() != before


def test_digest_keeps_parts_apart():
    assert cache.digest("ab", "c") != cache.digest("a", "bc")

