"""libtier for Python: thin objects over the C API, no logic that it should have.

    t = tier.Tier()
    c = t.context("demo", tier.Geometry([dict(name="kv", kind=tier.lib.TIER_KIND_DENSE, layers=2,
                                              groups=1, page_bytes=4096)], block_tokens=16))
    keys = tier.keys(tokens, 16)
    c.put(keys, data)
    count, found = c.match(keys)
    with t.reader.lease(c, found[0].block, 0) as page:
        numpy.frombuffer(page.view, numpy.float16)      # where it lies, no copy

What tier.h declares and has no object here is called as it is: tier.lib.tier_drain(t.handle), with
tier.ffi for arguments and tier.check for the result. Arrays of keys, found entries and blocks are
C arrays (len, index); a function that takes blocks takes the found entries of a match, too. Errors
of libtier are tier.Error, an OSError with its text. All calls let other threads run meanwhile.

SPDX-License-Identifier: Apache-2.0
"""
import asyncio
import errno
import json
import threading

from ._tier import ffi, lib


class Error(OSError):
    """A negative errno of libtier, with what failed, on what, and what to do."""


def check(result, what="libtier"):
    """The result of a call, or Error when it is negative."""
    if result < 0:
        raise Error(-result, f"{what}: {ffi.string(lib.tier_error_text()).decode()}")
    return result


class Options:
    """A C struct whose members are given by name; it keeps what they point to."""

    def __init__(self, struct, of=ffi, **members):
        self.struct = of.new(f"struct {struct} *")
        self.kept = []
        names = {name for name, _ in of.typeof(f"struct {struct}").fields}
        if "size" in names:
            self.struct.size = of.sizeof(f"struct {struct}")
        for name, value in members.items():
            if name not in names:
                raise TypeError(f"struct {struct} has no member {name}")
            if isinstance(value, str):
                value = ffi.new("char[]", value.encode())
            elif isinstance(value, Options):
                self.kept.append(value)
                value = value.struct
            if value is not None:
                self.kept.append(value)
                setattr(self.struct, name, value)


def _salt(salt):
    """The salt of keys from bytes, or NULL."""
    return Options("tier_salt", bytes=ffi.from_buffer(salt), count=len(salt)) if salt else None


def _struct(options):
    return options.struct if options else ffi.NULL


def _tokens(tokens):
    """Token numbers as a C array: without a copy where they are 32-bit numbers already."""
    try:
        view = memoryview(tokens)
    except TypeError:
        return ffi.new("uint32_t[]", tokens)
    if view.itemsize != 4:
        return ffi.new("uint32_t[]", list(tokens))
    return ffi.from_buffer("uint32_t[]", view)


def keys(tokens, block_tokens, parent=None, salt=None):
    """Keys of the whole blocks of tokens, behind parent (a key) and with salt (bytes)."""
    tokens = _tokens(tokens)
    out = ffi.new("tier_key[]", len(tokens) // block_tokens)
    s = _salt(salt)
    check(lib.tier_key_chain(out, _pointer(parent), _struct(s), tokens, len(tokens),
                             block_tokens), "keys")
    return out


def key_opaque(name, salt=None):
    """One key (an array of 1) for an engine's own name of a block, bytes."""
    out = ffi.new("tier_key[]", 1)
    check(lib.tier_key_opaque(out, ffi.from_buffer(name), len(name), _struct(_salt(salt))), "key")
    return out


def keys_opaque(names, salt=None):
    """Keys for an engine's own names of blocks, a list of bytes."""
    array = ffi.new("struct tier_name[]", len(names))
    kept = [ffi.from_buffer(name) for name in names]
    for entry, name in zip(array, kept):
        entry.bytes, entry.count = name, len(name)
    out = ffi.new("tier_key[]", len(names))
    check(lib.tier_key_names(out, array, len(names), _struct(_salt(salt))), "keys")
    return out


def _pointer(key):
    """Of an entry of an array of keys; a pointer stays what it is."""
    if key is None or ffi.typeof(key).kind == "pointer":
        return ffi.NULL if key is None else key
    return ffi.addressof(key)


def fingerprint(probe=b"", **members):
    """What two engines must agree in, as tier_context_options.fingerprint."""
    out, o = ffi.new("uint8_t[32]"), Options("tier_fingerprint", probe_bytes=len(probe), **members)
    view = ffi.from_buffer(probe)
    o.struct.probe = view
    check(lib.tier_fingerprint_digest(out, o.struct), "fingerprint")
    return out


def blocks(found):
    """The blocks of found entries, as an array; other arrays are given back as they are."""
    if ffi.typeof(found).item is not ffi.typeof("struct tier_found"):
        return found
    return ffi.new("tier_block[]", [(f.block.slot, f.block.generation) for f in found])


class Geometry:
    """What a block is made of: parts (dicts with the members of struct tier_part), or a preset."""

    def __init__(self, parts=None, preset=None, **members):
        out = ffi.new("tier_geometry **")
        if preset:
            check(lib.tier_geometry_preset(out, preset.encode()), f"geometry {preset}")
        else:
            made = [Options("tier_part", **part) for part in parts]
            array = ffi.new("struct tier_part[]", [part.struct[0] for part in made])
            o = Options("tier_geometry_options", part=array, part_count=len(made), **members)
            check(lib.tier_geometry_new(out, o.struct), "geometry")
        self._know(ffi.gc(out[0], lib.tier_geometry_free))

    @classmethod
    def of(cls, context):
        """An open context's (its C handle); valid as long as it is open."""
        geometry = cls.__new__(cls)
        geometry._know(lib.tier_context_geometry(context))
        return geometry

    def _know(self, handle):
        self.handle = handle
        self.block_tokens = lib.tier_geometry_block_tokens(self.handle)
        self.block_bytes = lib.tier_geometry_block_bytes(self.handle)

    def page_bytes(self, page):
        """Bytes of the page of that number."""
        part = ffi.new("struct tier_part *")
        for i in reversed(range(lib.tier_geometry_part_count(self.handle))):
            check(lib.tier_geometry_part(self.handle, i, part), "part")
            if page >= part.page_base:
                return part.page_bytes
        raise IndexError(page)

    def groups(self, part):
        """How many groups a layer of the part has."""
        out = ffi.new("struct tier_part *")
        check(lib.tier_geometry_part(self.handle, part, out), "part")
        return out.groups

    def page(self, part, layer, group):
        """The number of a page in its block."""
        return check(lib.tier_geometry_page(self.handle, part, layer, group), "page")


class Tier:
    """A connection to the daemon of this host; members of struct tier_connect_options by name."""

    def __init__(self, socket=None, **members):
        out = ffi.new("tier **")
        o = Options("tier_connect_options", socket=socket, **members)
        check(lib.tier_connect(out, o.struct), "connect")
        self.handle = out[0]
        self.local = threading.local()
        self.puts, self.put_number = threading.Lock(), 0

    def close(self):
        """With all contexts, readers and puts; leases of it must not be read any more."""
        handle, self.handle = self.handle, None
        if handle:
            lib.tier_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def context(self, name, geometry, **members):
        """Create or open a context; members of struct tier_context_options by name."""
        out = ffi.new("tier_context **")
        o = Options("tier_context_options", **members)
        check(lib.tier_context_create(self.handle, name.encode(), geometry.handle, o.struct, out),
              f"context {name}")
        return Context(self, out[0], geometry)

    def open(self, name):
        """Open a context that is there."""
        out = ffi.new("tier_context **")
        check(lib.tier_context_open(self.handle, name.encode(), ffi.NULL, out), f"context {name}")
        return Context(self, out[0], Geometry.of(out[0]))

    @property
    def reader(self):
        """This thread's reader; it is closed with the thread."""
        reader = getattr(self.local, "reader", None)
        if reader is None:
            reader = self.local.reader = Reader(self)
        return reader

    def admin(self, verb, **args):
        """Ask the daemon in JSON: what `tierctl` shows."""
        out = ffi.new("char **")
        text = json.dumps(args).encode() if args else ffi.NULL
        check(lib.tier_admin(self.handle, verb.encode(), text, out), verb)
        try:
            return json.loads(ffi.string(out[0]))
        finally:
            lib.free(out[0])

    def counters(self):
        """What this connection did, as a dict."""
        o = Options("tier_counters")
        check(lib.tier_counters(self.handle, o.struct), "counters")
        names = [name for name, _ in ffi.typeof("struct tier_counters").fields]
        return {name: getattr(o.struct, name) for name in names[1:]}

    def poll(self, most=64):
        """Completions that are there: C structs with user_data, result, status, value, aux."""
        out = ffi.new("struct tier_completion[]", most)
        return list(out[0:check(lib.tier_poll(self.handle, out, most), "poll")])

    async def completion(self, most=64):
        """Wait for completions in an event loop, as many as are there, one at least."""
        if not hasattr(self, "event_fd"):
            self.event_fd = check(lib.tier_event_fd(self.handle), "event descriptor")
        loop = asyncio.get_running_loop()
        while not (there := self.poll(most)):
            ready = loop.create_future()
            loop.add_reader(self.event_fd, lambda f: f.done() or f.set_result(None), ready)
            try:
                await ready
            finally:
                loop.remove_reader(self.event_fd)
        return there


class Context:
    """An open context."""

    def __init__(self, connection, handle, geometry):
        self.tier, self.handle, self.geometry = connection, handle, geometry

    def close(self):
        """Its leases must have been given back."""
        handle, self.handle = self.handle, None
        if handle and self.tier.handle:
            lib.tier_context_close(handle)

    def match(self, keys, count=None):
        """How many of the first blocks can be used, and an entry (block, state, tier) for each."""
        count = len(keys) if count is None else count
        found = ffi.new("struct tier_found[]", count)
        return check(lib.tier_match(self.handle, keys, count, found), "match"), found

    def match_tail(self, tokens, parent=None, salt=None):
        """The longest stored tail of tokens: its tokens (0: none), its key, its found entry."""
        tokens, s = _tokens(tokens), _salt(salt)
        key, found = ffi.new("tier_key[]", 1), ffi.new("struct tier_found[]", 1)
        o = Options("tier_tail", parent=_pointer(parent), salt=_struct(s), tokens=tokens,
                    count=len(tokens))
        return check(lib.tier_match_tail(self.handle, o.struct, key, found), "tail"), key, found

    def put(self, keys, data, **members):
        """Store whole blocks, one behind the other in data; members of struct tier_put_options.
        Returns how many are whole and visible then."""
        view = ffi.from_buffer(data)
        if len(view) != len(keys) * self.geometry.block_bytes:
            raise ValueError(f"put: {len(view)} bytes for {len(keys)} blocks of "
                             f"{self.geometry.block_bytes}")
        return self.put_at(keys, view, **members)

    def put_at(self, keys, address, **members):
        """The same from an address."""
        o = Options("tier_put_options", **members)
        return check(lib.tier_put_copy(self.handle, keys, len(keys), ffi.cast("void *", address),
                                       o.struct), "put")

    def stream(self, found, **members):
        """Begin to bring blocks layer by layer; members of struct tier_stream_options."""
        return Stream(self, found, **members)

    def put_begin(self, keys, **members):
        """Begin a put whose pages are written in place."""
        return Put(self, keys, **members)

    def fetch(self, found, **members):
        """Bring blocks into memory and wait; members of struct tier_ask (tier is TIER_CXL unless
        it is given). Returns how many of the first can be used."""
        return self._ask(lib.tier_fetch, found, members)

    def migrate(self, found, tier, user_data=0):
        """Begin to move blocks to a tier and out of those above it; a completion follows."""
        return self._ask(lib.tier_migrate, found, {"tier": tier, "user_data": user_data})

    def conversation(self, number, event, found=None, **members):
        """Tell what happens in a conversation; members of struct tier_conversation_options (tier is
        TIER_CXL unless it is given). A completion follows."""
        these = blocks(found) if found is not None else ffi.NULL
        o = Options("tier_conversation_options", tier=members.pop("tier", lib.TIER_CXL),
                    blocks=these, count=len(these) if found is not None else 0, **members)
        check(lib.tier_conversation(self.handle, number, event, o.struct), "conversation")

    session = conversation  # its old name

    def _ask(self, call, found, members):
        members.setdefault("tier", lib.TIER_CXL)
        o, these = Options("tier_ask", **members), blocks(found)
        return check(call(self.handle, these, len(these), o.struct), "ask")

    def delete(self, keys):
        """Delete blocks by key; returns how many there were."""
        return check(lib.tier_delete(self.handle, keys, len(keys)), "delete")


class Stream:
    """A prefix that comes layer by layer."""

    def __init__(self, context, found, **members):
        out, these = ffi.new("tier_stream **"), blocks(found)
        o = Options("tier_stream_options", tier=members.pop("tier", lib.TIER_CXL), **members)
        check(lib.tier_stream_open(context.handle, these, len(these), o.struct, out), "stream")
        self.tier, self.handle = context.tier, out[0]

    def wait(self, layer, deadline_ns=0):
        """How many blocks, from the first, the layer is there for; 0 when it does not come."""
        return max(0, lib.tier_stream_wait(self.handle, layer, deadline_ns))

    def release(self, layer):
        """Layers before this one have been read."""
        lib.tier_stream_release(self.handle, layer)

    def close(self):
        handle, self.handle = self.handle, ffi.NULL
        if self.tier.handle:
            lib.tier_stream_close(handle)


class Reader:
    """The right to hold leases, of one thread; Tier.reader is made where it is needed."""

    def __init__(self, connection):
        out = ffi.new("tier_reader **")
        check(lib.tier_reader_open(connection.handle, out), "reader")
        self.tier, self.handle = connection, out[0]
        self.ended = []  # leases that nothing looks at any more; whoever saw the last of it says so

    def close(self):
        """Gives back its leases, also those that something still looks at."""
        handle, self.handle = self.handle, None
        if handle and self.tier.handle:
            lib.tier_reader_close(handle)

    __del__ = close

    def sweep(self):
        """Give back the leases that have ended; the reader's thread only."""
        while self.ended:
            lease = self.ended.pop()
            if self.handle and self.tier.handle:
                lib.tier_release(self.handle, lease)

    def lease(self, context, block, page, flags=0):
        """Lease a page: it lies still until the lease is released."""
        self.sweep()
        lease = ffi.new("struct tier_lease *")
        check(lib.tier_lease_page(self.handle, context.handle, block, page, flags, lease), "lease")
        return Lease(self, lease)

    def gather(self, context, found, page, into, stride=0):
        """Copy one page of each block into a writable buffer; returns how many were copied."""
        pages = ffi.new("struct tier_page[]", [((f.slot, f.generation), page)
                                               for f in blocks(found)])
        view = ffi.from_buffer(into, require_writable=True)
        step = stride or context.geometry.page_bytes(page)
        if len(pages) and len(view) < (len(pages) - 1) * step + context.geometry.page_bytes(page):
            raise ValueError(f"gather: {len(view)} bytes for {len(pages)} pages every {step}")
        o = Options("tier_into", dst=view, stride=stride)
        return check(lib.tier_gather(self.handle, context.handle, pages, len(pages), o.struct),
                     "gather")

    def gather_pages(self, context, pages, address):
        """Copy pages one behind the other to an address, where there must be room for them. Pages
        are an array of struct tier_page, or a buffer of them, as a NumPy array of rows (slot,
        generation, page). Returns how many of the first were copied."""
        array = pages if isinstance(pages, ffi.CData) else ffi.from_buffer("struct tier_page[]",
                                                                           pages)
        errors = ffi.new("int32_t[]", len(array))
        o = Options("tier_into", dst=ffi.cast("void *", address), error=errors)
        count = check(lib.tier_gather(self.handle, context.handle, array, len(array), o.struct),
                      "gather")
        return count if count == len(array) else list(map(bool, errors)).index(True)


class Lease:
    """A leased page. `view` is its bytes where they lie, read-only. The lease is held as long as
    anything looks at them: the view, a part of it, an array; release() only lets go of the view."""

    def __init__(self, reader, struct):
        data = ffi.gc(ffi.cast("char *", struct.data), lambda _: reader.ended.append(struct))
        self.reader, self.address = reader, int(ffi.cast("uintptr_t", struct.data))
        self.view = memoryview(ffi.buffer(data, struct.bytes)).toreadonly()

    def release(self):
        self.view = None
        self.reader.sweep()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Put:
    """A put under way: write the pages, then commit (a completion follows) or abort."""

    def __init__(self, context, keys, **members):
        self.out = ffi.new("tier_put **")
        self.context, self.count = context, len(keys)
        o = Options("tier_put_options", **members)
        check(lib.tier_put_begin(context.handle, keys, len(keys), o.struct, self.out), "put")

    def page(self, block, part, layer, group):
        """A page's bytes, to be written, as a memoryview."""
        where = lib.tier_put_data(self.out[0], block, part, layer, group)
        if not where:
            raise IndexError(f"put: no page {layer}, {group} of part {part} in block {block}")
        number = self.context.geometry.page(part, layer, group)
        return memoryview(ffi.buffer(where, self.context.geometry.page_bytes(number)))

    def write(self, address, part, layer):
        """Copy a layer of all blocks from an address: page after page, block after block."""
        geometry, source = self.context.geometry, ffi.cast("char *", address)
        groups = geometry.groups(part)
        size = geometry.page_bytes(geometry.page(part, layer, 0))
        for block in range(self.count):
            for group in range(groups):
                where = lib.tier_put_data(self.out[0], block, part, layer, group)
                if not where:
                    raise IndexError(f"put: no page {layer}, {group} of part {part}")
                ffi.memmove(where, source, size)
                source += size

    def commit(self, user_data=0):
        check(lib.tier_put_commit(self.out[0], user_data), "commit")
        self.out[0] = ffi.NULL

    def finish(self, wait_s=60):
        """Commit and wait, on a connection on which nobody else waits for completions. Returns
        how many blocks are whole and visible."""
        t, done = self.context.tier, ffi.new("struct tier_completion *")
        with t.puts:
            t.put_number += 1
            self.commit(t.put_number)
            while done.user_data != t.put_number:  # others are of puts that were given up
                if check(lib.tier_wait(t.handle, done, 1, 1, int(wait_s * 1e9)), "put") == 0:
                    raise Error(errno.ETIMEDOUT, "put: no word from the daemon")
        if done.result < 0:
            raise Error(-done.result, f"put: {ffi.string(lib.tier_strerror(done.result)).decode()}")
        return done.value

    def abort(self):
        """Drop it; nothing when it was committed."""
        put, self.out[0] = self.out[0], ffi.NULL
        if self.context.tier.handle:
            lib.tier_put_abort(put)
