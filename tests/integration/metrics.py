"""What tests/integration/metrics.sh asks of a daemon: metrics.py PORT SOCKET TIERCTL checks all of
it, metrics.py --text PORT prints a scrape.

SPDX-License-Identifier: Apache-2.0
"""
import json
import socket
import subprocess
import sys
import time

OPENMETRICS = "application/openmetrics-text"


def connect(where):
    if isinstance(where, int):
        return socket.create_connection(("127.0.0.1", where), timeout=10)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(where)
    return s


def raw(where, request):
    with connect(where) as s:
        s.sendall(request)
        answer = b""
        while True:
            piece = s.recv(65536)
            if not piece:
                return answer
            answer += piece


def get(where, path="/metrics", accept=None, method="GET"):
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    if accept:
        head += f"Accept: {accept}\r\n"
    head, _, body = raw(where, (head + "\r\n").encode()).partition(b"\r\n\r\n")
    return head.decode(), body.decode()


def expect(what, holds):
    if not holds:
        sys.exit(f"metrics: {what}")


def parse(text, module):
    families = {}
    for family in module(text):
        expect(f"{family.name} stands once", family.name not in families)
        families[family.name] = family
    return families


def parsers():
    """Debian's reference parser of both formats."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
    from prometheus_client.parser import text_string_to_metric_families as prometheus
    return openmetrics, prometheus


def check_formats(port, sock, tierctl):
    openmetrics, prometheus = parsers()
    head, text = get(sock, accept=OPENMETRICS)
    expect("OpenMetrics' type: " + head, "application/openmetrics-text; version=1.0.0" in head)
    families = parse(text, openmetrics)
    head, text = get(port)
    expect("Prometheus' type: " + head, "text/plain; version=0.0.4" in head)
    plain = parse(text, prometheus)
    expect("no name of a context on the port", "odd.name" not in text)
    expect("no figure of one", "tier_context_" not in text)
    differ = {n for n in set(families) ^ set(plain) if not n.startswith("tier_context")}
    expect(f"both formats have the same families: {differ}", not differ)
    named = {s.labels["context"] for s in families["tier_context_blocks"].samples}
    expect(f"32 contexts of 40 have figures: {len(named)}", len(named) == 32)
    expect("8 have none", families["tier_contexts_unnamed"].samples[0].value == 8)
    expect("the first one is named: " + str(named)[:80], "odd.name-0" in named)
    stat = json.loads(subprocess.check_output([tierctl, "--json", "stat"]))
    words = "".join(families)
    missing = [m["name"] for m in stat["metrics"]
               if m["name"].removesuffix("_ns").removesuffix("_bytes") not in words]
    expect(f"figures of tierctl stat that are not served: {missing}", not missing)
    check_values(families, {m["name"]: m["value"] for m in stat["metrics"]}, stat["latency"])
    return len(families)


def check_values(families, stat, latency):
    """Of figures that stand still: no client is there but tierctl."""
    for name, family in (("puts", "tier_puts"), ("put_bytes", "tier_put_bytes"),
                         ("fences", "tier_fences")):
        value = [s.value for s in families[family].samples if s.name.endswith("_total")]
        expect(f"{family}: {value}, tierctl says {stat[name]}", value == [stat[name]])
    for family in ("read", "request", "copy", "flush", "write", "fence"):
        told = sum(s.value for s in families[f"tier_{family}_duration_seconds"].samples
                   if s.name.endswith("_count"))
        counted = sum(x["count"] for x in latency if x["name"] == family)
        expect(f"{family}: {told} in histograms, {counted} in tierctl stat", told == counted)


def check_refusals(port):
    expect("another path is 404", " 404 " in get(port, "/")[0])
    expect("POST is 405", " 405 " in get(port, method="POST")[0])
    for bad in (b"\0" * 4096 + b"\r\n\r\n", b"GET " + b"/" * 60000 + b" HTTP/1.1\r\n\r\n",
                b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 9000 + b"\r\n"):
        try:
            answer = raw(port, bad)
        except ConnectionError:
            answer = b""
        expect(f"nonsense is refused: {answer[:40]}", b" 200 " not in answer[:20])


def check_slow(port, sock, tierctl):
    """Scrapers that never end a request, or never read: the daemon serves all others."""
    slow = []
    for i in range(24):
        s = connect(port)
        s.sendall(b"GET /metrics HTTP/1.1\r\n" if i % 2 else
                  b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        slow.append(s)
    begun = time.monotonic()
    subprocess.check_output([tierctl, "status"])
    head, _ = get(sock)
    took = time.monotonic() - begun
    expect(f"others are served beside slow scrapers, {took:.1f} s", " 200 " in head and took < 3)
    for s in slow:
        s.close()
    begun = time.monotonic()
    while " 200 " not in get(port)[0]:
        expect("the port is free again", time.monotonic() - begun < 20)
        time.sleep(0.05)


def main():
    if sys.argv[1] == "--text":
        print(get(int(sys.argv[2]))[1], end="")
        return
    port, sock, tierctl = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    count = check_formats(port, sock, tierctl)
    check_refusals(port)
    check_slow(port, sock, tierctl)
    print(f"{count} families in both formats, the reference parser agrees")


main()
