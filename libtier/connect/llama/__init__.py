"""The door of llama.cpp for Python: for whoever has a llama_context's address and its library, as
llama-cpp-python (Llama.ctx) or a ctypes client does. See tier_llama.h.

SPDX-License-Identifier: Apache-2.0
"""
from .. import Error, Options
from .._llama import ffi, lib

COUNTERS = ("tokens", "blocks", "bytes", "match_ns", "fetch_ns", "gather_ns", "set_ns")


class Door:
    """tier_llama_open: sequence of the context at address llama holds two tokens or more; library
    is the engine's, as ctypes.CDLL(...)._handle. Members of tier_llama_options by name."""

    def __init__(self, connection, model, llama, library=0, sequence=0, **members):
        self.tier = connection
        out = ffi.new("tier_llama **")
        o = Options("tier_llama_options", ffi, tier=connection.handle, model=model,
                    llama=ffi.cast("void *", llama), library=ffi.cast("void *", library),
                    sequence=sequence, **members)
        result = lib.tier_llama_open(out, o.struct)
        self.handle, self.kept = out[0], o
        try:
            self._check(result, "open")
        except Error:
            self.close()
            raise

    def close(self):
        """Before its connection is closed."""
        handle, self.handle = self.handle, ffi.NULL
        if self.tier.handle:
            lib.tier_llama_close(handle)

    def _check(self, result, what):
        if result < 0:
            text = ffi.string(lib.tier_llama_error_text(self.handle)).decode()
            raise Error(-result, f"{what}: {text}")
        return result

    def load(self, llama, tokens, sequence=0):
        """How many of the first tokens need not be computed: their state is set."""
        return self._check(lib.tier_llama_load(self.handle, ffi.cast("void *", llama), sequence,
                                               tokens, len(tokens)), "load")

    def store(self, llama, tokens, sequence=0):
        """Store what the sequence holds of the first tokens; returns how many are stored now."""
        return self._check(lib.tier_llama_store(self.handle, ffi.cast("void *", llama), sequence,
                                                tokens, len(tokens)), "store")

    def loaded(self):
        """What the last load did, as a dict; `from`: blocks by the slowest tier they lay in."""
        o = Options("tier_llama_loaded", ffi)
        self._check(lib.tier_llama_loaded(self.handle, o.struct), "loaded")
        return {name: getattr(o.struct, name) for name in COUNTERS} | {
            "from": list(getattr(o.struct, "from"))}
