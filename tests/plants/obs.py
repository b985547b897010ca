"""The planted bugs of what an operator is told: table.py takes them in, and has bug() and the names
of folders.

SPDX-License-Identifier: Apache-2.0
"""

# ---- what check and the documents tell ----------------------------------------------------------

bug("hole-under-pages-not-told", SHELL + "recount.c", "if (sum->missing)", "if (0)",
    "test_api_recount")
bug("foreign-memory-not-told", SHELL + "recount.c", "if (sum->foreign)", "if (0)",
    "test_api_recount")
bug("descriptors-not-compared", SHELL + "recount.c", "if (out->descriptors != out->regions)",
    "if (0)", "test_dispatch")
bug("mappings-not-compared", SHELL + "recount.c", "if (out->mapped != out->region_bytes)",
    "if (0)", "test_dispatch")
bug("holes-of-the-store-not-told", SHELL + "recount.c", "if (b.holes &&", "if (0 &&",
    "test_api_recount")
bug("discards-told-as-holes", SHELL + "recount.c", "if (b.holes && !s->core_config.discard)",
    "if (b.holes)", "test_api_recount")
bug("charged-not-summed", SHELL + "recount.c", "all->charged += sum.charged;", ";",
    "test_api_recount")
bug("written-not-summed", SHELL + "recount.c", "all->written += sum.written;", ";",
    "test_api_recount")
bug("resident-not-summed", SHELL + "recount.c", "all->resident += sum.resident;", ";",
    "test_api_recount")
bug("found-not-summed", SHELL + "recount.c", "all->found += sum.found;", ";",
    "test_api_recount")
bug("foreign-not-summed", SHELL + "recount.c", "all->foreign += sum.foreign;", ";",
    "test_api_recount")
bug("missing-not-summed", SHELL + "recount.c", "all->missing += sum.missing;", ";",
    "test_api_recount")
bug("index-not-summed", SHELL + "recount.c",
    "r->out->index_resident += index > 0 ? (uint64_t)index : 0;", "(void)index;",
    "test_api_recount")
bug("errors-of-the-host-not-counted", OBS + "status.c",
    "errors += a->o->recount(", "a->o->recount(", "test_api_recount")
bug("charged-shown-as-written", OBS + "status.c",
    '"charged", obs_number(g->charged),\n\t\t\t "written", obs_number(g->written)',
    '"charged", obs_number(g->written),\n\t\t\t "written", obs_number(g->charged)',
    "test_api_recount", "test_tierctl")
bug("check-with-errors-is-well", CTL + "cmd_block.c",
    "return rc == CTL_OK && !clean ? CTL_FAILED : rc;", "return rc;", "tierctl.sh")
bug("written-shown-as-charged", CTL + "cmd_block.c",
    '"host.%s.written"', '"host.%s.charged"', "test_tierctl", "tierctl.sh")
bug("reads-shown-as-copies", SHELL + "dispatch.c",
    'obs_latency(&s->obs, "read", obs_class_name[k], &p->read[k]);',
    'obs_latency(&s->obs, "read", obs_class_name[k], &p->copy[k]);', "test_dispatch",
    "test_tierctl")
bug("flushes-in-microseconds", SHELL + "dispatch.c",
    "hist_record(&s->dispatch.sync, time_now_ns() - s->dispatch.sync_since_ns);",
    "hist_record(&s->dispatch.sync, (time_now_ns() - s->dispatch.sync_since_ns) / 1000);",
    "test_dispatch", "test_tierctl")
bug("count-shown-as-done", OBS + "status.c",
    '"count", (int)r.count, "done",\n\t\t\t\t  (int)r.done,',
    '"count", (int)r.done, "done",\n\t\t\t\t  (int)r.count,', "test_tierctl", "test_obs")
bug("ready-shown-as-released", OBS + "status.c",
    '"ready", (int)s.ready, "released",\n\t\t\t\t  (int)s.released',
    '"ready", (int)s.released, "released",\n\t\t\t\t  (int)s.ready', "test_tierctl", "test_obs")
bug("puts-shown-as-pins", OBS + "status.c",
    '(int)v.requests, "puts", (int)v.puts,\n\t\t\t "pins", (int)v.pins',
    '(int)v.requests, "puts", (int)v.pins,\n\t\t\t "pins", (int)v.puts', "test_tierctl")
bug("leases-of-one-tier", OBS + "status.c",
    "obs_number(v.quarantined[ABI_TIER_HBM] + v.quarantined[ABI_TIER_CXL])",
    "obs_number(v.quarantined[ABI_TIER_HBM])", "test_obs", "test_tierctl", "test_api_limits")
bug("removed-contexts-untold", OBS + "quota.c",
    "core_removed_at(core, i, &stats) == 0; i++)", "0; i++)", "test_tierctl")
bug("leases-of-contexts-untold", "tierd/core/stats.c",
    "tier[t].quarantined = reclaim_held(c, x, t);", ";", "test_tierctl")
