#!/usr/bin/env python3
"""What programs do with files at the corners of the interface, a line of outcomes each:
tests/integration/objects_programs.sh compares those of `tier run` with those of a plain directory.

usage: shim_corners.py FOLDER

SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import time

FOLDER = sys.argv[1]
LIBC = ctypes.CDLL(None, use_errno=True)
NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC
TEXT = ctypes.c_char_p
HANDLE = ctypes.c_void_p


def at(name):
    return os.path.join(FOLDER, name)


def put(name, data=b"x"):
    os.makedirs(os.path.dirname(at(name)), exist_ok=True)
    with open(at(name), "wb") as f:
        f.write(data)
    return at(name)


def get(name):
    with open(at(name), "rb") as f:
        return f.read()


def told(call, *args, **more):
    """What it returns, or the name of its error."""
    try:
        return call(*args, **more)
    except OSError as e:
        return errno.errorcode.get(e.errno, e.errno)


def libc(name, *args, returns=ctypes.c_int):
    call = getattr(LIBC, name)
    call.restype = returns
    ctypes.set_errno(0)
    result = call(*args)
    return errno.errorcode.get(ctypes.get_errno()) if result == -1 else result


def child(act):
    """What it returns is the child's status."""
    pid = os.fork()
    if pid == 0:
        os._exit(act() or 0)
    return pid


def ended(*pids):
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def soon(name, data):
    """What another process closes is there a moment later."""
    for _ in range(100):
        if told(get, name) == data:
            break
        time.sleep(0.02)
    return told(get, name)


# ---- names that change under open files


def rename_over_open():
    put("b", b"new")
    with open(put("a", b"old"), "rb") as f:
        os.rename(at("b"), at("a"))
        return f.read(), get("a"), told(os.stat, at("b"))


def rename_over_writer():
    put("b", b"new")
    with open(put("a", b"old"), "r+b", buffering=0) as f:
        os.rename(at("b"), at("a"))
        f.write(b"OLD")
    return get("a")


def rename_without_replacing():
    def move():
        return libc("renameat2", -100, at("x").encode(), -100, at("y").encode(), 1)

    put("x", b"X")
    put("y", b"Y")
    first = move()
    os.unlink(at("y"))
    return first, move(), get("y")


def move_out_and_back():
    with tempfile.TemporaryDirectory() as elsewhere:
        shutil.move(put("x", b"cross"), elsewhere)
        gone = os.path.exists(at("x"))
        shutil.move(os.path.join(elsewhere, "x"), at("back"))
    return gone, get("back")


def unlink_mapped():
    with open(put("m", b"m" * 8192), "r+b") as f, mmap.mmap(f.fileno(), 8192) as m:
        os.unlink(at("m"))
        m[:2] = b"zz"
        return m[:3], os.path.exists(at("m"))


def map_beyond_close():
    with open(put("m", b"m" * 8192), "r+b") as f:
        m = mmap.mmap(f.fileno(), 8192)
    m[:2] = b"zz"
    m.flush()
    first = get("m")[:3]
    m.close()
    return first, soon("m", b"zz" + b"m" * 8190)[:3]


def unlink_while_listed():
    for i in range(300):
        put(f"many/{i}")
    for entry in os.scandir(at("many")):
        os.unlink(entry.path)
    return os.listdir(at("many")), os.rmdir(at("many"))


# ---- several processes


def append_by_two():
    def append(word):
        fd = os.open(at("log"), os.O_WRONLY | os.O_APPEND)
        for _ in range(300):
            os.write(fd, word * 10 + b"\n")
        os.close(fd)

    put("log", b"")
    ended(*(child(lambda word=word: append(word)) for word in (b"A", b"B")))
    return sorted((line, get("log").split().count(line)) for line in set(get("log").split()))


def create_by_eight():
    def create():
        return told(os.open, at("one"), os.O_CREAT | os.O_EXCL | os.O_WRONLY) != "EEXIST"

    return sorted(ended(*(child(create) for _ in range(8))))


def lock():
    def taken():
        fd = os.open(at("lock"), os.O_RDWR | os.O_CREAT)
        return told(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB) == "EAGAIN"

    put("lock")
    fd = os.open(at("lock"), os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    first = ended(child(taken))
    os.close(fd)
    return first, ended(child(taken))


def outlived_by_child():
    """A daemon's child writes on when the parent has closed it and gone."""
    def grandchild():
        os.read(go, 1)
        os.write(fd, b"grandchild")
        os.close(fd)

    go, say = os.pipe()
    fd = os.open(at("daemon"), NEW)
    ended(child(lambda: child(grandchild) and 0))
    os.close(fd)
    os.write(say, b"x")
    return soon("daemon", b"grandchild")


def stdio_around_child():
    with open(at("out"), "w", encoding="utf-8") as f:
        f.write("parent ")
        f.flush()
        subprocess.run(["sh", "-c", "printf child"], stdout=f, check=True)
        f.write(" parent")
    return get("out"), os.system(f"cat <{at('out')} >>{at('twice')}"), soon("twice", get("out"))


def spawned():
    fd = os.open(at("spawned"), NEW)
    pid = os.posix_spawn("/bin/cat", ["cat", put("in", b"input")], os.environ,
                         file_actions=[(os.POSIX_SPAWN_DUP2, fd, 1)])
    os.close(fd)
    return ended(pid), soon("spawned", b"input")


# ---- descriptors


def dup_over_writer():
    a, b = os.open(at("a"), NEW), os.open(at("b"), NEW)
    os.write(a, b"A")
    os.write(b, b"B")
    os.dup2(a, b)
    first = get("b")
    os.close(a)
    os.write(b, b"more")
    os.close(b)
    return first, get("a")


def by_proc():
    fd = os.open(put("x", b"by proc"), os.O_RDONLY)
    with open(f"/proc/self/fd/{fd}", "rb") as f:
        first = f.read()
    fd = os.open(at("w"), NEW)
    with open(f"/dev/fd/{fd}", "wb", buffering=0) as f:
        f.write(b"12")
        os.close(fd)
        f.write(b"34")
    return first, soon("w", b"1234")


def statx_of_descriptor():
    fd = os.open(put("x", b"12345"), os.O_RDONLY)
    out = ctypes.create_string_buffer(256)
    rc = libc("statx", fd, b"", 0x1000, 0x7ff, out)
    inode = int.from_bytes(out[32:40], "little")
    return rc, int.from_bytes(out[40:48], "little"), inode == os.stat(at("x")).st_ino


def from_folder():
    os.makedirs(at("d"))
    put("d/x", b"in d")
    d, before = os.open(at("d"), os.O_PATH | os.O_DIRECTORY), os.open(".", os.O_RDONLY)
    os.close(os.open("../top", NEW, dir_fd=d))
    os.fchdir(d)
    try:
        listed, size = os.listdir("."), os.path.getsize("x")
        with open("../d/./y", "wb") as f:
            f.write(b"y")
    finally:
        os.fchdir(before)
    return (listed, size, get("d/y"), get("top"), os.access("x", os.R_OK, dir_fd=d),
            told(os.open, "none/x", NEW, dir_fd=d), told(os.open, "x", os.O_RDONLY, dir_fd=987),
            os.unlink("x", dir_fd=d), told(os.stat, at("d/x")))


def write_what_is_read():
    fd = os.open(put("x"), os.O_RDONLY)
    return (told(os.write, fd, b"y"), told(os.ftruncate, fd, 0),
            told(mmap.mmap, fd, 1, mmap.MAP_SHARED, mmap.PROT_WRITE | mmap.PROT_READ),
            mmap.mmap(fd, 1, mmap.MAP_PRIVATE, mmap.PROT_WRITE | mmap.PROT_READ)[:])


def copy_inside_kernel():
    a, b = os.open(put("x", b"0123456789" * 1000), os.O_RDONLY), os.open(at("y"), NEW)
    copied = os.copy_file_range(a, b, 5000) + os.sendfile(b, a, 5000, 2500)
    os.close(b)
    return copied, get("y") == get("x")[:7500]


def room_ahead():
    fd = os.open(at("x"), NEW)
    os.posix_fallocate(fd, 0, 65536)
    kept = libc("fallocate", fd, 1, ctypes.c_long(65536), ctypes.c_long(4096))
    hole = libc("fallocate", fd, 3, ctypes.c_long(0), ctypes.c_long(4096))
    os.close(fd)
    return kept, hole, os.path.getsize(at("x"))


def freopened():
    name, room = put("x", b"read").encode(), ctypes.create_string_buffer(16)
    f = HANDLE(libc("freopen", name, b"r", HANDLE(libc("fopen", b"/dev/null", b"r",
                                                       returns=HANDLE)), returns=HANDLE))
    read = libc("fread", room, 1, 16, f), room.value
    f = HANDLE(libc("freopen", at("y").encode(), b"w", f, returns=HANDLE))
    return read, libc("fputs", b"written", f) >= 0, libc("fclose", f), get("y")


# ---- links


def links():
    put("x", b"target")
    for name, target in (("near", "x"), ("far", at("x")), ("lost", "none")):
        os.symlink(target, at(name))
    first = [(told(get, n), os.path.exists(at(n)), os.path.islink(at(n)), told(os.stat, at(n))
              if n == "lost" else os.stat(at(n)).st_size) for n in ("near", "far", "lost")]
    put("near", b"through")
    put("lost", b"made")
    return (first, get("x"), get("none"), told(os.open, at("near"), os.O_RDONLY | os.O_NOFOLLOW),
            os.truncate(at("far"), 3), get("x"), os.chmod(at("far"), 0o600),
            oct(os.stat(at("x")).st_mode), os.rename(at("far"), at("moved")), get("moved"),
            os.unlink(at("near")), get("x"))


def link_to_folder():
    put("run/w", b"w")
    os.symlink("run", at("latest"))
    first = told(get, "latest/w"), os.path.getsize(at("latest/w"))
    put("latest/v", b"v")
    os.rename(at("latest/w"), at("latest/u"))
    return first, get("run/v"), get("run/u"), sorted(os.listdir(at("latest")))


def links_as_hubs_have():
    """A cache of models: names are links to blobs in another folder."""
    put("blobs/sha", b"weights")
    os.makedirs(at("snapshots/1"))
    os.symlink("../../blobs/sha", at("snapshots/1/model"))
    return (get("snapshots/1/model"), [e.is_file() for e in os.scandir(at("snapshots/1"))],
            os.path.realpath(at("snapshots/1/model")) == os.path.realpath(at("blobs/sha")))


def taken_names():
    put("x")
    put("y")
    return (told(os.symlink, "x", at("y")), told(os.mkdir, at("y")), told(os.readlink, at("y")),
            told(os.makedirs, at("y"), exist_ok=True), told(os.rmdir, at("y")),
            told(os.scandir, at("y")), get("y"))


def real_paths():
    put("d/x")
    names = (at(n).encode() for n in ("d/x", "d/../d/x", "none"))
    got = [libc("realpath", name, None, returns=TEXT) for name in names]
    return [g and os.path.relpath(g, os.path.realpath(FOLDER).encode()) for g in got]


# ---- what is told


def folders_as_files():
    os.mkdir(at("d"))
    put("x")
    return (told(os.open, at("d"), os.O_WRONLY), told(os.unlink, at("d")),
            told(os.rename, at("x"), at("d")), told(os.open, at("d"), os.O_RDWR | os.O_CREAT),
            told(os.open, at("d"), os.O_CREAT | os.O_EXCL | os.O_WRONLY), put("d/y") and
            libc("remove", at("d").encode()), get("d/y"))


def folder_over_folder():
    """A folder does not take the place of one in which files lie, and mv moves them all."""
    for name in ("full", "full/deep", "empty", "other", "other/deep"):
        os.mkdir(at(name))
    put("full/deep/a", b"a")
    put("other/deep/b", b"b")
    shut = [told(os.rename, at("empty"), at(to)) for to in ("full", "full/", "full/deep")]
    kept = [told(libc, "renameat2", -100, at("empty").encode(), -100, at("full").encode(), 1)]
    subprocess.run(["mv", at("full"), at("other")], check=True)
    subprocess.run(["mv", "-T", at("empty"), at("moved")], check=True)
    failed = subprocess.run(["mv", "-T", at("moved"), at("other")], stderr=subprocess.DEVNULL,
                            check=False).returncode
    return (shut, kept, failed, get("other/full/deep/a"), get("other/deep/b"),
            sorted(os.listdir(at("other"))), os.path.exists(at("full")))


def every_byte():
    folder, wrong = os.fsencode(FOLDER), []
    for byte in set(range(1, 256)) - {ord("/")}:
        name = folder + b"/n" + bytes([byte]) + b"m"
        with open(name, "wb") as f:
            f.write(bytes([byte]))
        with open(name, "rb") as f:
            if f.read() != bytes([byte]) or not os.path.exists(name):
                wrong.append(byte)
    return wrong, len(os.listdir(folder)), told(put, "q" * 255) == at("q" * 255), \
        told(put, "q" * 256)


def globbed():
    class Glob(ctypes.Structure):
        _fields_ = [("count", ctypes.c_size_t), ("path", ctypes.POINTER(TEXT)),
                    ("rest", ctypes.c_char * 200)]

    for name in ("1.bin", "2.bin", "3"):
        put(name)
    found = Glob()
    rc = libc("glob", at("*.bin").encode(), 0, None, ctypes.byref(found))
    return rc, [os.path.basename(found.path[i]) for i in range(found.count)]


def modes_and_times():
    mask = os.umask(0o077)
    fd = os.open(put("x"), os.O_RDWR)
    os.umask(mask)
    masked = oct(os.stat(at("x")).st_mode)
    os.utime(fd, ns=(1, 123456789))
    os.fchmod(fd, 0o750)
    os.close(fd)
    return masked, oct(os.stat(at("x")).st_mode), os.stat(at("x")).st_mtime_ns


def space():
    put("x")
    return os.statvfs(at("x")).f_blocks == os.statvfs(FOLDER).f_blocks > 0


def temporary_files():
    fd, name = tempfile.mkstemp(dir=FOLDER)
    os.write(fd, b"t")
    os.close(fd)
    with tempfile.TemporaryFile(dir=FOLDER) as f:
        f.write(b"nameless")
        f.seek(0)
        return get(name), oct(os.stat(name).st_mode), f.read(), len(os.listdir(FOLDER))


CORNERS = [rename_over_open, rename_over_writer, rename_without_replacing, move_out_and_back,
           unlink_mapped, map_beyond_close, unlink_while_listed, append_by_two, create_by_eight,
           lock, outlived_by_child, stdio_around_child, spawned, dup_over_writer, by_proc,
           statx_of_descriptor, from_folder, write_what_is_read, copy_inside_kernel, room_ahead,
           freopened, links, link_to_folder, links_as_hubs_have, taken_names, real_paths,
           folders_as_files, folder_over_folder, every_byte, globbed, modes_and_times, space,
           temporary_files]


def main():
    for corner in CORNERS:
        try:
            result = corner()
        except OSError as e:
            result = f"fails: {e}".replace(FOLDER, "")
        print(corner.__name__, result, flush=True)
        for name in os.listdir(FOLDER):
            if os.path.isdir(at(name)) and not os.path.islink(at(name)):
                shutil.rmtree(at(name))
            else:
                os.unlink(at(name))


if __name__ == "__main__":
    main()
