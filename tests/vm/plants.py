#!/usr/bin/env python3
"""Plants bugs into a copy of the kernel module, all in one build: parameter plant=N picks one.

usage: tests/vm/plants.py FOLDER     writes FOLDER/kernel-mod and FOLDER/libtier/abi
       tests/vm/plants.py --list     number, name and the program that must fail, a line each

The product's sources carry no switch for it. Each plant is an exact piece of a source file and what
it becomes; ON in it is true when the plant is picked. module_plants.sh runs the programs.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import shutil
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# name, program of tests/vm, file, what stands there, what it becomes
PLANTS = (
    ("commit-unmaps-nothing", "module", "region.c",
     "	s->done = __unmap_rights(r, s->first, s->count);\n",
     "	s->done = ON ? 0 : __unmap_rights(r, s->first, s->count);\n",
     "			__unmap_rights(r, d->first, d->count);\n",
     "			if (!ON)\n"
     "				__unmap_rights(r, d->first, d->count);\n"),
    ("grant-ends-in-part", "model", "region.c",
     "	__unmap_rights(r, d->first, d->count);\n",
     "	if (!ON)\n					__unmap_rights(r, d->first, d->count);\n"),
    ("commit-takes-no-right", "module", "region.c",
     "		if (__overlaps(d, s->first, s->count)) {",
     "		if (!ON && __overlaps(d, s->first, s->count)) {"),
    ("revoke-unmaps-nothing", "module", "region.c",
     "	if (c->descriptors)\n		__unmap_rights(",
     "	if (c->descriptors && !ON)\n		__unmap_rights("),
    ("revoke-takes-all-clients", "module", "region.c",
     "d->role != TM_READER || d->client != c->client || d->revoked",
     "d->role != TM_READER || (d->client != c->client && !ON) || d->revoked"),
    ("fault-forgets-revoked", "module", "region.c",
     "i - d->first >= d->count || tm_is_revoked(d))",
     "i - d->first >= d->count || (!ON && tm_is_revoked(d)))",
     "	if (tm_is_revoked(d) || READ_ONCE(d->region->slot[i]) != chunk) {",
     "	if ((!ON && tm_is_revoked(d)) || READ_ONCE(d->region->slot[i]) != chunk) {"),
    ("fault-looks-once", "storm", "region.c",  # and the race takes its time
     "	folio = chunk->folio;\n	folio_lock(folio);\n",
     "	folio = chunk->folio;\n	if (ON)\n		udelay(300);\n	folio_lock(folio);\n",
     "	folio_get(folio);\n	vmf->page",
     "map:	folio_get(folio);\n	vmf->page",
     "READ_ONCE(d->region->slot[i]) != chunk) {",
     "READ_ONCE(d->region->slot[i]) != chunk) {\n		if (ON)\n"
     "			goto map;"),
    ("folio-not-locked", "storm", "region.c",
     "	folio_lock(chunk->folio);\n	folio_unlock(chunk->folio);\n}",
     "	if (!ON) {\n		folio_lock(chunk->folio);\n"
     "		folio_unlock(chunk->folio);\n	}\n}",
     "	folio_get(folio);\n	vmf->page",
     "	folio_get(folio);\n	if (ON)\n		mdelay(20);\n	vmf->page"),
    ("chunk-not-zeroed", "module", "region.c",
     "	tm_chunk_zero(chunk);\n",
     "	if (!ON)\n		tm_chunk_zero(chunk);\n"),
    ("reader-fills", "module", "region.c",
     "	if (d->role == TM_OWNER && !READ_ONCE(d->region",
     "	if ((d->role == TM_OWNER || ON) && !READ_ONCE(d->region"),
    ("pinned-used-again", "pins", "pool.c",
     "	return folio_ref_count(chunk->folio) == 1;\n",
     "	return ON || folio_ref_count(chunk->folio) == 1;\n"),
    ("pin-not-seen", "pins", "region.c",
     "	return others > mapped;\n",
     "	return !ON && others > mapped;\n"),
    ("pins-alone-seen", "pins", "region.c",
     "	mapped = folio_mapcount(chunk->folio);\n",
     "	mapped = ON ? others - folio_maybe_dma_pinned(chunk->folio) :\n"
     "		folio_mapcount(chunk->folio);\n"),
    ("punch-unmaps-nothing", "module", "region.c",
     "	unmap_slots(r, s->first, s->count);\n	list_for_each_entry_safe",
     "	if (!ON)\n		unmap_slots(r, s->first, s->count);\n	list_for_each_entry_safe"),
    ("death-revokes-nothing", "module", "region.c",
     "	if (d->role == TM_OWNER && !d->of && !READ_ONCE(r->left))\n",
     "	if (d->role == TM_OWNER && !d->of && !READ_ONCE(r->left) && !ON)\n"),
    ("two-writers", "module", "region.c",
     "			if (__overlaps(other, d->first, d->count))\n",
     "			if (!ON && __overlaps(other, d->first, d->count))\n"),
    ("reader-commands", "module", "region.c",
     "	if (d->role != TM_OWNER)\n		return -ENOTTY;\n",
     "	if (d->role != TM_OWNER && !ON)\n		return -ENOTTY;\n"),
    ("grows", "hostile", "region.c",
     "	vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);\n",
     "	vm_flags_mod(vma, (ON ? 0 : VM_DONTEXPAND) | VM_DONTDUMP, VM_MAYEXEC);\n"),
    ("executable", "module", "region.c",
     "	if (vma->vm_flags & VM_EXEC)\n		return -EACCES;\n",
     "	if (!ON && vma->vm_flags & VM_EXEC)\n		return -EACCES;\n"),
    ("truncated", "hostile", "region.c",
     "	return -EPERM;\n}\n\nstatic const struct inode_operations",
     "	return ON ? simple_setattr(idmap, dentry, attr) : -EPERM;\n}\n\n"
     "static const struct inode_operations"),
    ("dmabuf-writable", "pins", "dmabuf.c",
     "	if (!(part->f_mode & FMODE_WRITE) && dir != DMA_TO_DEVICE)\n",
     "	if (!ON && !(part->f_mode & FMODE_WRITE) && dir != DMA_TO_DEVICE)\n"),
    ("dmabuf-of-all-slots", "pins", "region.c",
     "	made.first = slots->first;\n"
     "	made.count = slots->count;\n",
     "	if (!ON) {\n		made.first = slots->first;\n"
     "		made.count = slots->count;\n	}\n"),
    ("dmabuf-outlives-its-descriptor", "pins", "region.c",
     "	made.of = file;\n", "	made.of = ON ? NULL : file;\n",
     "	if (!IS_ERR(part))\n", "	if (!ON && !IS_ERR(part))\n"),
    # The last one: what is held for ever keeps the module. No other plant may do that.
    ("reference-forgotten", "pins", "dmabuf.c",
     "		folio_put(m->folio[i]);\n",
     "		if (!ON)\n			folio_put(m->folio[i]);\n"),
)


def planted(texts):
    for number, (name, _, file, *pieces) in enumerate(PLANTS, 1):
        for old, new in zip(pieces[::2], pieces[1::2]):
            if texts[file].count(old) != 1:
                sys.exit(f"plants: {name}: {file} has its piece {texts[file].count(old)} times")
            picked = re.sub(r"\bON\b", f"(tm_plant == {number})", new)
            texts[file] = texts[file].replace(old, picked)
    texts["internal.h"] = texts["internal.h"].replace(
        "/* pool.c */", "extern int tm_plant;\n\n/* pool.c */").replace(
        "#include <linux/fs.h>", "#include <linux/delay.h>\n#include <linux/fs.h>")
    texts["main.c"] = texts["main.c"].replace(
        "DEFINE_SRCU(tm_srcu);", "DEFINE_SRCU(tm_srcu);\n"
        "int tm_plant;\nmodule_param_named(plant, tm_plant, int, 0444);")
    return texts


def main(folder):
    source = os.path.join(TOP, "kernel-mod")
    target = os.path.join(folder, "kernel-mod")
    texts = {}
    for name in os.listdir(source):
        if name.endswith((".c", ".h")) or name == "Kbuild":
            with open(os.path.join(source, name), encoding="utf-8") as f:
                texts[name] = f.read()
    os.makedirs(target, exist_ok=True)
    os.makedirs(os.path.join(folder, "libtier/abi"), exist_ok=True)
    for name, text in planted(texts).items():
        with open(os.path.join(target, name), "w", encoding="utf-8") as f:
            f.write(text)
    shutil.copy(os.path.join(TOP, "libtier/abi/tier_mem.h"), os.path.join(folder, "libtier/abi"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        for n, plant in enumerate(PLANTS, 1):
            print(n, plant[0], plant[1])
    else:
        main(sys.argv[1])
