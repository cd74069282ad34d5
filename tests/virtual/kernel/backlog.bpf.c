/* What a port program needs of the guest kernel: the root queue's backlog through kernel types, without a JIT compiler. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define KERNEL __attribute__((preserve_access_index))
struct gnet_stats_queue { __u32 qlen; __u32 backlog; } KERNEL;
struct Qdisc { struct gnet_stats_queue qstats; } KERNEL;
struct netdev_queue { struct Qdisc *qdisc; } KERNEL;
struct sock { int sk_mark; } KERNEL;
struct net_device { struct netdev_queue *_tx; } KERNEL;
struct sk_buff { struct net_device *dev; struct sock *sk; struct sk_buff *next; } KERNEL;

extern void *bpf_cast_to_kern_ctx(void *) __ksym;

struct seen { __u64 packets, last, most, through_null; };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

SEC("tc") int look(struct __sk_buff *context)
{
	__u32 zero = 0;
	struct seen *all = bpf_map_lookup_elem(&seen, &zero);
	struct sk_buff *packet = bpf_cast_to_kern_ctx(context);
	__u32 backlog = packet->dev->_tx->qdisc->qstats.backlog;
	/* A packet on its way out has no successor: this follows a null pointer, which must read 0 and not end the kernel. */
	struct net_device *nowhere = packet->next->dev;

	if (!all)
		return -1;
	all->packets++;
	all->last = backlog;
	if (backlog > all->most)
		all->most = backlog;
	if (nowhere)
		all->through_null++;
	return -1;
}

char _license[] SEC("license") = "GPL";
