"""The planted bugs that the simulated fleet must find: tests/sim/plants --hosts puts them into the
protocol between hosts, one at a time.

SPDX-License-Identifier: Apache-2.0
"""

# name: (file below tierd/net, what stands there, what it becomes, and again if there is more)
PLANTS = {
    # grants
    "no-release-check": ("proto.c", "if (m->error)\n\t\tover(p, m->error);\n\telse if", "if"),
    "grant-never-lapses": ("proto.c", "else if (now_ns >= p->ends_ns)", "else if (0)"),
    "crc-without-key": ("proto.c", "crc32c(0, key, NET_KEY_BYTES)", "0"),
    "crc-without-epoch": ("proto.c", "crc = crc32c(crc, &epoch, sizeof(epoch));", "(void)epoch;"),
    "crc-without-page": (
        "proto.c", "crc = crc32c(crc, &page->page, sizeof(page->page));", ";"),
    "crc-without-bytes": ("proto.c", "return crc32c(crc, bytes, page->bytes);", "return crc;"),
    # streams from afar
    "layer-before-its-last-page": (
        "proto.c", "now_ns < p->ends_ns ? p->cursor.layer : 0", "now_ns < p->ends_ns ? "
        "p->cursor.layer + 1 : 0"),
    "layer-that-stands-no-more": ("proto.c", "return publishes && now_ns", "(void)publishes; "
                                  "return now_ns"),
    # standing grants
    "keep-word-not-heard": ("proto_keep.c", "if (m->error)\n\t\treturn over(k, m->error != -EPROTO "
                            "? m->error : -ESTALE);", ";"),
    "keep-read-after-its-end": ("proto_keep.c", "if (now_ns >= k->ends_ns)\n\t\treturn", "if (0)"
                                "\n\t\treturn"),
    "keep-served-after-its-end": ("proto_keep.c", "else if (now_ns >= k->ends_ns)", "else if (0)"),
    "keep-of-another-epoch": ("proto_keep.c", "if (!publishes)", "if (0)"),
    "keep-never-ends": (
        "proto_keep.c", "k->ends_ns = k->sent_ns + grant_lasts(m);", "k->ends_ns = UINT64_MAX;"),
    "keep-word-of-one-that-fell": (
        "proto_keep.c", "if (!intact)\n\t\tout->error = -ESTALE;\n\telse if", "if"),
    # peers
    "reused-incarnation": ("proto_peers.c", "p->incarnation != incarnation && !p->fixed", "0"),
    "probation-asked": (
        "proto_peers.c", "return p->state == PEER_UP;", "return p->state != PEER_FREE;"),
    "probation-for-ever": ("proto_peers.c", "p->state = PEER_UP;", ";"),
    "next-life-not-known": (
        "proto_peers.c", "one->incarnation = member->incarnation;\n\tone->state", "one->state"),
    # the lease
    "lease-without-margin": ("proto_agree.c", "a->lease_ns - a->lease_ns / 32", "a->lease_ns"),
    "lost-lease-kept": (
        "proto_agree.c", "if (r->error && c->what == AGREE_KEEP)\n\t\tlease_lost(a);\n\telse if",
        "if"),
    "not-said-under-the-next-lease": (
        "proto_agree.c", "told_lost(a, &a->told[i]);", ";"),
    "strict-without-a-lease": (
        "proto_agree.c", "&& (!s->strict || now_ns < a->until_ns)", ""),
    # epochs
    "read-before-said": ("proto_agree.c", "|| say(a, c))\n\t\treturn", "|| (a->read && say(a, c)))"
                         "\n\t\treturn"),
    "fleet-epoch-not-applied": (
        "proto_agree.c", "if (s->epoch < r->epoch)\n\t\treturn raise(r->epoch, c);", ""),
    "served-while-behind": ("proto_agree.c", "s->known = false;", ";"),
    "own-epoch-kept-to-itself": (
        "proto_agree.c", "if (!r->mod || s->epoch > r->epoch)", "if (!r->mod)"),
    "raise-acknowledged-at-once": (
        "proto_raise.c", "i < answer->count && r->done", "i < 0"),
    "raise-waits-for-one": ("proto_raise.c", "i < answer->count && r->done", "i < 1 && i < "
                            "answer->count"),
    # deletions
    "deletion-acknowledged-by-epoch": (
        "proto_raise.c", "r->deletion ? one->deleted >= r->number : one->epoch >= r->epoch",
        "one->epoch >= r->epoch"),
    "deletion-beside-a-put": (
        "proto_agree.c", "a->refused[i] = s->publishing > 0;", "a->refused[i] = false;"),
    "published-after-a-deletion": ("proto_agree.c", "&& s->deleted == deleted", ""),
    "granted-before-a-deletion": (
        "proto_agree.c", "s->epoch == epoch && s->deleted >= deleted",
        "s->epoch == epoch"),
    "log-with-holes": ("proto_agree.c", "!r->error && r->count == c->last - c->first + 1",
                       "!r->error"),
    "own-epoch-older-than-a-deletion": (
        "proto_agree.c", "if (s->epoch > r->epoch && r->first > 1 &&", "if (0 &&"),
    "deletion-brings-an-own-epoch": (
        "proto_raise.c", "r->there.mod ? r->there.epoch : epoch", "epoch"),
    "deletion-number-used-again": (
        "proto_raise.c", "c->deleted = r->there.deleted + 1;", "c->deleted = r->there.deleted + "
        "!r->there.deleted;"),
    # a memory box
    "a-box-forgets-what-it-took": (
        "proto_box.c", "b->first + b->count++", "b->first + b->count"),
    # homes
    "members-never-change": (
        "proto_homes.c", "return memcmp(was, is, sizeof(*was)) != 0;",
        "(void)was; (void)is; return false;"),
    "a-lost-word-is-not-said-again": (
        "proto_homes.c", "return memcmp(was, is, sizeof(*was)) != 0;",
        "return memcmp(was, is, __builtin_offsetof(struct homes_view, lost)) != 0;"),
    "a-home-takes-nothing": ("proto_homes.c", "else if (one.tag)", "else if (0)"),
    # pages by RDMA
    "rdma-hole-before-deregistration": (
        "proto.c", "case LENT_BEGIN: return LENT_DEREGISTER; case LENT_DEREGISTER: return "
        "LENT_GIVE_BACK;", "case LENT_BEGIN: return LENT_GIVE_BACK; case LENT_GIVE_BACK: return "
        "LENT_DEREGISTER;"),
    "rdma-registration-left-behind": (
        "proto.c", "case LENT_BEGIN: return LENT_DEREGISTER;",
        "case LENT_BEGIN: return LENT_GIVE_BACK;"),
    "rdma-any-read-frees": (
        "proto.c", "return w->count && m->id == w->told - w->count + 1 ? 0 : -EPROTO;",
        "return w->count && m->id ? 0 : -EPROTO;"),
    "rdma-whole-before-it-is-read": (
        "proto.c", "if (w->id[(w->first + i) % NET_PLACES_MAX] == id)",
        "if (w->id[w->first] != w->id[(w->first + i) % NET_PLACES_MAX] && !id)"),
    "rdma-one-place-for-all": (
        "proto.c", "(w->first + w->count) % NET_PLACES_MAX", "w->first"),
    # a CXL pool
    "pool-not-flushed": ("proto_pool.c", "case POOL_STORE: return POOL_FLUSH;",
                         "case POOL_STORE: return POOL_TELL;"),
    "pool-not-dropped": ("proto_pool.c", "case POOL_BEGIN: return POOL_DROP;",
                         "case POOL_BEGIN: return POOL_LOAD;"),
    "pool-told-before-flush": (
        "proto_pool.c", "case POOL_STORE: return POOL_FLUSH; case POOL_FLUSH: return POOL_TELL;",
        "case POOL_STORE: return POOL_TELL; case POOL_TELL: return POOL_FLUSH;"),
    "pool-used-again-before-copied": (
        "proto_pool.c", "p->place[i].offset == offset && !lapsed(&p->place[i], now_ns)", "0"),
    "pool-lapses-without-margin": (
        "proto_pool.c", ".until_ns = s->ends_ns + lasts_ns / 32 + 1", ".until_ns = s->ends_ns"),
    "pool-taken-early": ("proto_pool.c", "x->from_ns = now_ns + rest_ns + rest_ns / 32;",
                         "(void)rest_ns; x->from_ns = now_ns;"),
    "pool-taken-from-the-living": (
        "proto_pool.c", "x->dead = !member_stands(seen, r);", "(void)seen; x->dead = true;"),
    "pool-stored-without-a-lease": (
        "proto_pool.c", "&& now_ns >= x->from_ns && now_ns < lease_ns;",
        "&& now_ns >= x->from_ns; (void)lease_ns;"),
    "pool-owned-by-a-record-before": (
        "proto_pool.c", "&& p->entered && x->entered == p->entered", ""),
    "pool-place-freed-by-another": (
        "proto_pool.c", "at->offset && at->grant == grant &&",
        "at->offset && (grant || !grant) &&"),
    "pool-copied-counted-twice": ("proto.c", "|| m->number != s->copied + 1", ""),
}
