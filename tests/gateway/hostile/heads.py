"""Request lines, targets, hosts and fields that are not what they look like, and bytes of other protocols."""

# ruff: noqa: E501 - tables

from __future__ import annotations

from tests.gateway.hostile.messages import BODY, CHAT, LENGTH, Message, family, good, request

TARGETS = [
    "", "/", "//", "*", "/*", "/v1", "/v1/", "/v1/chat", CHAT + "/", "/" + CHAT, CHAT.replace("/", "//"), "/v1//chat/completions",
    "/./v1/chat/completions", "/v1/./chat/completions", "/v1/../v1/chat/completions", "/x/..;/v1/chat/completions",
    "/v1/chat/completions/.", "/v1/chat/completions/..", "/v1/chat/completions;x=y", "/v1/chat/completions%20",
    "/v1/chat/completions%00", "/v1/chat/completions%0d%0ax:y", "/v1/chat/completions%3f", "/v1/chat/completions%23", "/v1%2fchat%2fcompletions",
    "/v1/chat%2Fcompletions", "/%76%31/chat/completions", "/v1/%2e%2e/admin", "/v1/%2e%2e%2fadmin", "/v1/..%2fadmin", "/v1/..%5cadmin",
    "/..%252f..%252fadmin", "/v1/chat/completions/../../../sleep", "/V1/chat/completions", "/v1/Chat/Completions", "\\v1\\chat\\completions",
    "/v1\\chat\\completions", "v1/chat/completions", "http://a/v1/chat/completions", "http://evil/sleep", "HTTP://a/v1/chat/completions",
    "https://a/v1/chat/completions", "//a/v1/chat/completions", "http:/v1/chat/completions", "http:///v1/chat/completions", "a:80", "@a/v1/chat/completions",
    "/v1/chat/completions#x", "/v1/chat/completions#?x", "/v1/chat/completions\xa0", "/v1/chat/completi\xf6ns", "/v1/chat/completions\x7f",
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/reset_prefix_cache", "/sleep", "/wake_up", "/server_info", "/collective_rpc",
    "/v1/cache/blocks", "/v1/cache/pull", "/pause", "/metrics", "/readyz", "/workers", "/explain", "/invocations", "/load", "/version", "/ping",
    "/is_sleeping", "/v1/models/../chat/completions",
]  # fmt: skip

FIRST_LINES = [
    f" POST {CHAT} HTTP/1.1", f"POST\t{CHAT}\tHTTP/1.1", f"POST {CHAT}",
    f"POST {CHAT} HTTP/1.2", f"POST {CHAT} HTTP/1.10", f"POST {CHAT} HTTP/2.0", f"POST {CHAT} HTTP/2", f"POST {CHAT} HTTP/0.9", f"POST {CHAT} HTTP/3.0",
    f"POST {CHAT} HTTP/1.1 ", f"POST {CHAT} HTTP/1.1 x", f"POST {CHAT} http/1.1", f"POST {CHAT} HTTPS/1.1", f"POST {CHAT} HTTP/01.1", f"POST {CHAT} HTTP/1,1",
    f"POST {CHAT} HTTP/1.", f"POST {CHAT} HTTP/.1", f"POST {CHAT} HTTP 1.1", f"POST {CHAT} XHTTP/1.1", f"POST {CHAT} HTTP/1.1\x00", f"POST {CHAT} ICE/1.0",
    f"post {CHAT} HTTP/1.1", f"Post {CHAT} HTTP/1.1", f"P\x00ST {CHAT} HTTP/1.1", f"POST\x0b{CHAT} HTTP/1.1", f"PO ST {CHAT} HTTP/1.1",
    f"POST{CHAT} HTTP/1.1", f"{CHAT} HTTP/1.1", "POST HTTP/1.1", "POST", f"FOO {CHAT} HTTP/1.1", f"GET {CHAT} HTTP/1.1", f"PUT {CHAT} HTTP/1.1", f"PATCH {CHAT} HTTP/1.1",
    f"DELETE {CHAT} HTTP/1.1", f"OPTIONS {CHAT} HTTP/1.1", f"TRACE {CHAT} HTTP/1.1", f"HEAD {CHAT} HTTP/1.1", f"CONNECT {CHAT} HTTP/1.1", "CONNECT a:80 HTTP/1.1",
    "OPTIONS * HTTP/1.1", f"SOURCE {CHAT} HTTP/1.1", f"M-SEARCH {CHAT} HTTP/1.1", f"QUERY {CHAT} HTTP/1.1", f"POST {CHAT}\x00 HTTP/1.1", f"POST {CHAT}\r HTTP/1.1",
    f"POST {CHAT}\n HTTP/1.1", f"POST {CHAT} HTTP/1.1\r\rx", f"\x00POST {CHAT} HTTP/1.1", f"\xef\xbb\xbfPOST {CHAT} HTTP/1.1", f"POST /{'x' * 9000} HTTP/1.1",
]  # fmt: skip

LENIENT = [f"POST  {CHAT} HTTP/1.1", f"POST {CHAT}  HTTP/1.1", f"POST {CHAT} RTSP/1.0"]
"""Said otherwise than the grammar has it, and yet to be taken for one thing only; llhttp lets them pass."""

HOSTS = ["a\r\nhost: a", "a\r\nHost: b", "a\r\n b", "\x00", "a\x00b", "a\nb"]
ODD_HOSTS = ["a/#@evil", "a:b:c", "[::1", "evil@a", "a b", "\xe9", "", "."]

SPOOFED = [
    "x-tenant: globex", "x-tenant-id: globex", "x_tenant: globex", "x-forwarded-user: root", "forwarded: for=1.2.3.4", "x-real-ip: 1.2.3.4",
    "x-data-parallel-rank: 1", "x-gateway-destination-endpoint: 10.0.0.1", "x-worker: w2", "baggage: tenant=globex", "te: trailers",
    "proxy-authorization: Basic eDp5", "proxy-connection: keep-alive", "keep-alive: timeout=9999", "connection: authorization",
    "connection: host, content-length", "connection: close, keep-alive", "connection: \xe9", "x-http-method-override: GET", "x-original-url: /sleep",
    "content-type: multipart/form-data; boundary=x", "content-type: text/plain", "accept-encoding: br", "cookie: a=b", "trailer: x", "via: 1.1 a",
    "max-forwards: 0", "range: bytes=0-1", "if-match: x", "expect: 200-ok", "expect: 100-continue",
]  # fmt: skip

ALIEN = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + good(), b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + good(), b"*1\r\n$4\r\nPING\r\n", b"GET /\r\n\r\n", b"EHLO a\r\n",
    b"\x00" * 100, b"\xff" * 100, b"\r\n" * 500, b"\n" * 500, b"\r" * 500, b" " * 500, b"{}", BODY, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" + good(),
    b":" * 100 + b"\r\n\r\n", b"A" * 70_000, b"POST " + b"A" * 70_000, b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 300 + b"\r\n", b"\x05\x01\x00", b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00",
]  # fmt: skip

MESSAGES: list[Message] = [
    *family("target", [request(LENGTH, target=target) for target in TARGETS]),
    *family("query", [request(LENGTH, target=CHAT + query) for query in ("?", "?a=b", "?a=/../sleep", "?%00", "??", "?a#b")], 1),
    *family("first line", [line.encode("latin-1") + request(LENGTH).partition(b" HTTP/1.1")[2] for line in FIRST_LINES]),
    *family("lenient first line", [line.encode() + request(LENGTH).partition(b" HTTP/1.1")[2] for line in LENIENT], 1),
    *family("host", [request(LENGTH, host=host) for host in HOSTS]),
    *family("odd host", [request(f"host: {host}", LENGTH, host="") for host in ODD_HOSTS], 1),
    *family("no host", [request(LENGTH, host="")]),
    *family("no host, old", [request(LENGTH, host="", version="HTTP/1.0")], 1),
    *family("spoofed", [good(line) for line in SPOOFED if not line.startswith("x_")], 1),
    *family("spoofed name", [good(line) for line in SPOOFED if line.startswith("x_")]),
    *family("upgrade", [good(f"upgrade: {name}", "connection: upgrade") + good() for name in ("websocket", "h2c", "x")], 1),
    *family("fields", [good(*[f"x-{number}: y" for number in range(count)]) for count in (120, 500)]),
    *family("long field", [good("x: " + "y" * 9000), good("y" * 9000 + ": x"), good("authorization: Bearer " + "y" * 9000)]),
    *family("two keys", [good("authorization: Bearer acme-key"), good("Authorization: Bearer shared-key")]),
    *family("after HEAD", [request(LENGTH, method="HEAD") + good(), request(method="HEAD", body=b"") + good()], 1),
    *family("alien", ALIEN),
]  # fmt: skip
