#!/bin/sh
# Rank 0 receives, every other rank sends to it at the same time: an incast of kernel TCP, measured by iperf3.
#
#     fabriclab exec topologies/leaf-spine-2x2x4.yaml --ranks 3 -- sh examples/iperf3.sh 50M
#
# The word after the script is how many bytes each sends. On the real clock iperf3 prints wall-time rates: 1/TDF of the fabric's.
set -eu
port() { echo $((5200 + $1)); }

if [ "$RANK" = 0 ]; then
    sender=1
    while [ "$sender" -lt "$WORLD_SIZE" ]; do
        iperf3 -s -1 -p "$(port "$sender")" &
        sender=$((sender + 1))
    done
    wait
else
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.01 # the servers may not listen yet
        if iperf3 -c "$MASTER_ADDR" -p "$(port "$RANK")" -n "${1:-50M}"; then exit 0; fi
    done
    exit 1
fi
