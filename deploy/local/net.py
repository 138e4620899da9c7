#!/usr/bin/env python3
"""Network facts for the scripts of the local stack.

net.py ports N           N free loopback ports, one a line
net.py free PORT...      exit 0 where nothing listens on any of them
net.py amqp PORT         exit 0 where a broker greets on the port
net.py http URL          exit 0 where the URL answers 200
net.py put URL           exit 0 where the URL answers 200 to a PUT without content
"""

import random
import socket
import sys
import urllib.request

HOST = "127.0.0.1"


def is_free(port):
    with socket.socket() as probe:
        # As servers do: a port whose old connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_ports(count):
    """Ports below the kernel's range for outgoing connections.

    A port that the kernel hands out for bind(0) may be taken by any client while its
    service restarts; these can't be.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        low, high = map(int, file.read().split())
    below = range(20000, min(low, 32768))
    above = range(high + 1, 65536)
    candidates = list(below) + list(above)
    if len(candidates) < 1000:
        candidates = list(range(20000, 65536))
    random.shuffle(candidates)
    ports = []
    for port in candidates:
        if is_free(port):
            ports.append(port)
            if len(ports) == count:
                return ports
    sys.exit(f"net.py: fewer than {count} free ports on {HOST}")


def broker_greets(port):
    """A broker answers an unsupported protocol header with the one it speaks, or a
    supported one with Connection.Start (frame type 1)."""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.settimeout(2)
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return connection.recv(1) == b"\x01"
    except OSError:
        return False


def answers(url, method="GET"):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, method=method)
        with opener.open(request, timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


def main(verb, *words):
    if verb == "ports":
        print(*free_ports(int(words[0])), sep="\n")
        return 0
    if verb == "free":
        return 0 if all(is_free(int(word)) for word in words) else 1
    if verb == "amqp":
        return 0 if broker_greets(int(words[0])) else 1
    if verb == "http":
        return 0 if answers(words[0]) else 1
    if verb == "put":
        return 0 if answers(words[0], "PUT") else 1
    sys.exit(__doc__)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
