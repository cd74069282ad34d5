# fabriclab in a container, set up by the same script as everywhere else.
#
#   docker build -t fabriclab .
#
# Virtual clock: no capability is needed, but the default system call filter refuses personality(2), which the guest kernel uses to switch
# address randomisation off:
#   docker run --rm --security-opt seccomp=unconfined -v "$PWD/runs:/opt/fabriclab/runs" \
#     fabriclab incast topologies/leaf-spine-2x2x4.yaml --senders 7 --clock virtual
#
# Real clock: it makes namespaces, links and qdiscs in this machine's kernel and sets sysctls. --privileged is the short way:
#   docker run --rm -it --privileged -v "$PWD/runs:/opt/fabriclab/runs" \
#     fabriclab incast topologies/leaf-spine-2x2x4.yaml --senders 7 --clock real
# What of that is used: two capabilities besides the default ones, CAP_SYS_ADMIN (namespaces, mounts, BPF) and CAP_NET_ADMIN (links, routes,
# qdiscs); no AppArmor profile; a /proc/sys that can be written:
#   docker run --rm -it --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt apparmor=unconfined --security-opt systempaths=unconfined ...
#
# Checked without a container engine: the RUN steps on a bare Debian 12, and a run with exactly these capabilities. Unchecked: the build
# and the options above under Docker itself.

FROM debian:12 AS ready
WORKDIR /opt/fabriclab
COPY . .
RUN scripts/fabriclab --version \
 && rm -rf /var/lib/apt/lists/* ~/.cache/pip

# The kernel of the virtual clock: its compiler and source stay in this stage.
FROM ready AS kernel
RUN scripts/build-kernel

FROM ready
COPY --from=kernel /var/cache/fabriclab/kernels /var/cache/fabriclab/kernels
VOLUME /opt/fabriclab/runs
ENTRYPOINT ["/opt/fabriclab/scripts/fabriclab"]
CMD ["--help"]
