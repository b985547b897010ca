"""Files of weights for weights.sh, and what must be found of them.

  weights.py make FOLDER               a.safetensors, b.safetensors, c.gguf, and lies/
  weights.py check TENSORS PARTS FILE...  the table and the parts against the files

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import random
import struct
import sys

LAYERS = 5


def tensors(seed):
    rng = random.Random(seed)
    yield "model.embed_tokens.weight", [64, 33], rng.randbytes(64 * 33 * 2)
    for layer in rng.sample(range(LAYERS), LAYERS):
        for part in ("attn.q", "mlp.up"):
            rows = rng.randrange(1, 90)
            yield f"model.layers.{layer}.{part}.weight", [rows, 16], rng.randbytes(rows * 32)
    for expert in (1, 0):
        for part in ("up", "down"):
            yield (f"model.layers.2.mlp.experts.{expert}.{part}_proj.weight", [8, 16],
                   rng.randbytes(256))
    yield "lm_head.weight", [7, 5], rng.randbytes(70)


def safetensors(seed):
    head, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape, raw in tensors(seed):
        head[name] = {"dtype": "BF16", "shape": shape,
                      "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def gguf_string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(seed):
    every = [(name.replace("model.layers", "blk"), s, raw) for name, s, raw in tensors(seed)]
    out = struct.pack("<4sIQQ", b"GGUF", 3, len(every), 3)
    out += gguf_string("general.name") + struct.pack("<I", 8) + gguf_string("made up")
    out += gguf_string("general.alignment") + struct.pack("<II", 4, 64)
    out += gguf_string("words") + struct.pack("<IIQ", 9, 8, 2) + gguf_string("a") + gguf_string("")
    data = b""
    for name, shape, raw in every:
        out += gguf_string(name) + struct.pack("<IQQIQ", 2, *shape, 30, len(data))
        data += raw + bytes(-len(raw) % 64)
    return out + bytes(-len(out) % 64) + data


def lies(good):
    """Files of which each says something that is not so."""
    size, = struct.unpack("<Q", good[:8])
    head = json.loads(good[8:8 + size])
    data = good[8 + size:]

    def again(change):
        new = json.loads(json.dumps(head))
        change(new["lm_head.weight"])
        text = json.dumps(new).encode()
        return struct.pack("<Q", len(text)) + text + data

    yield good[:5]
    yield good[:100]
    yield struct.pack("<Q", 1 << 62) + good[8:]
    yield struct.pack("<Q", len(good)) + good[8:]
    yield again(lambda t: t.update(data_offsets=[0, 1 << 60]))
    yield again(lambda t: t.update(data_offsets=[-70, 0]))
    yield again(lambda t: t.update(data_offsets=[0, 70]))  # another's bytes
    yield again(lambda t: t.update(shape=[1 << 62, 1 << 62]))
    yield again(lambda t: t.update(shape=[7, 6]))
    yield again(lambda t: t.update(dtype="Q"))
    yield good[:-1]
    whole = gguf(3)
    yield whole[:40]
    yield whole[:-200]
    yield whole[:8] + struct.pack("<Q", 1 << 40) + whole[16:]
    yield whole[:16] + struct.pack("<Q", 1 << 40) + whole[24:]


def make(folder):
    for name, raw in (("a.safetensors", safetensors(1)), ("b.safetensors", safetensors(2)),
                      ("c.gguf", gguf(3))):
        with open(f"{folder}/{name}", "wb") as file:
            file.write(raw)
    os.mkdir(f"{folder}/lies")
    for i, raw in enumerate(lies(safetensors(1))):
        with open(f"{folder}/lies/{i}", "wb") as file:
            file.write(raw)


def wanted(path):
    seed = {"a": 1, "b": 2, "c": 3}[os.path.basename(path)[0]]
    for name, _, raw in tensors(seed):
        yield name.replace("model.layers", "blk") if seed == 3 else name, raw


def check(table, parts, paths):
    with open(table, encoding="ascii") as file:
        lines = [line.split() for line in file]
    layers = [int(words[2]) for words in lines if words[0] == "part"]
    assert lines[0][:3] == ["tier", "weights", "1"] and len(layers) == int(lines[0][3])
    assert layers == sorted(layers) and layers[0] == 0 and layers[-1] == 99999, layers
    found, experts = [], {}
    for words in lines:
        if words[0] != "tensor":
            continue
        name, part, at, size = words[1], int(words[4]), int(words[5]), int(words[6])
        if ".layers." in name or name.startswith("blk."):
            number = name.split("blk." if name.startswith("blk.") else ".layers.")[1]
            assert layers[part] == 1 + int(number.split(".")[0]), words
        expert = name.partition(".experts.")[2].partition(".")[0]
        assert experts.setdefault(part, expert) == expert, "a part of an expert and of another"
        with open(f"{parts}/{part:04}", "rb") as file:
            raw = file.read()
            raw = raw[at:at + size]
        assert at % 64 == 0 and len(raw) == size
        found.append((name, raw))
    every = [pair for path in paths for pair in wanted(path)]
    assert len(found) == len(every)
    for (name, raw), (want, bytes_) in zip(sorted(found), sorted(every)):
        # A gguf file does not say where a tensor's padding begins.
        assert name == want and raw[:len(bytes_)] == bytes_ and not any(raw[len(bytes_):]), name
    print(len(layers))


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    check(sys.argv[2], sys.argv[3], sys.argv[4:])
