#!/bin/sh
# Runs in `tools/kernel-vm --deterministic`, beside the program `forebay-bench-order`, once for each
# argument: options of the program that say what the client sends.
#
# The server and the client are programs of their own. The first line of each server is its last
# whole second, in the form in which the kernel's own figures were published.

server() {
    forebay-bench-order --listen 127.0.0.1:10002 "$@" >server &
    sleep 0.2
    forebay-bench-order --connect 127.0.0.1:10002 $load --seconds 2 >client
    kill $!
    wait
    tail -n 1 server
    sed -n 's/^latency us: \(p50 .*\), p99.9.*/  answers: \1 us/p; s/^passed/  passed/p' client
}

echo "Linux $(uname -r)"
for load; do
    echo
    echo "== $load"
    for order in fifo lifo; do
        echo "$order:"
        server --server ring --order $order
    done
    echo "epoll:"
    server --server epoll
done
