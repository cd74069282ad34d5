// SPDX-License-Identifier: GPL-2.0
/*
 * What one egress port of a switch or a network card does to each packet before it is queued: classify by DSCP, lose at
 * random, trim or leave to overflow, mark CE on the instantaneous backlog, count.
 *
 * One program and one set of maps serve all ports of a run. The port is known by the class id of its tc filter, which
 * cls_bpf puts into tc_classid before it runs the program (net/sched/cls_bpf.c): number in the plan + 1.
 *
 * Built twice: plainly, where it reads the backlog of the packet's own class out of the kernel (BTF and kfuncs), and with
 * -DVIRTUAL_QUEUE, where a clock and the rate give the backlog of one virtual queue for the whole port.
 *
 * layout.py repeats the structures below; the loader refuses to go on where the sizes differ.
 */
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

#define ROCE_PORT 4791
#define WIRE_OVERHEAD 24 /* preamble 8, FCS 4, gap 12: what the size table of the root qdisc adds */
#define BINS 64

#define DSCP_CONTROL 48
#define DSCP_TRIMMED 46
#define DSCP_TRIMMED_LAST_HOP 47

#define FLAG_MARK 1
#define FLAG_TRIM 2
#define FLAG_LAST_HOP 4

enum { CONTROL, DATA, TRIMMED, CLASSES };

struct config {
	__u32 flags;
	__u32 loss;       /* probability in units of 2^-32 */
	__u32 kmin;       /* bytes */
	__u32 kmax;       /* bytes */
	__u64 pmax;       /* probability in units of 2^-32, up to 2^32 */
	__u32 limit;      /* bytes of the data queue on the wire */
	__u32 bin;        /* bytes a histogram bin */
	__u32 trim;       /* bytes kept behind the UDP header */
	__u32 limit_other; /* bytes of the queues for control and for trimmed packets */
	__u64 ps_per_byte; /* virtual queue only */
};

struct class_stats {
	__u64 packets;
	__u64 bytes;
	__u64 backlog_sum; /* of the backlogs that its packets found */
	__u64 backlog_max;
};

struct stats {
	struct bpf_spin_lock lock;
	__u32 pad;
	__u64 mark_state; /* SplitMix64 states: one stream a purpose, so that loss does not shift the marks */
	__u64 loss_state;
	__u64 busy_until_ps; /* virtual queue only */
	__u64 ect;
	__u64 marked;
	__u64 above_kmin;
	__u64 trimmed;
	__u64 lost;
	__u64 overflow;   /* did not fit when they came: the queue behind drops them */
	__u64 ce_dropped; /* of lost and overflow: those that carried CE */
	__u64 unmarked;   /* should have been marked, but the header was not writable */
	struct class_stats cls[CLASSES];
	__u64 histogram[2][BINS]; /* control, data */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} port_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stats);
} port_stats SEC(".maps");

/* SplitMix64 (Steele, Lea, Flood 2014); the upper half, as in traffic/rng.py. */
static __always_inline __u32 draw(__u64 *state)
{
	__u64 z = *state += 0x9E3779B97F4A7C15ULL;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
	return (z ^ z >> 31) >> 32;
}

#ifdef VIRTUAL_QUEUE

#define backlog_of(ctx, cls) 0

/* The line's unfinished work in bytes; the packet is added to it. Call with the lock held. */
static __always_inline __u32 virtual_backlog(struct stats *st, const struct config *cf, __u64 now_ps, __u32 wire)
{
	__u64 per_byte = cf->ps_per_byte ? cf->ps_per_byte : 1;
	__u64 work = st->busy_until_ps > now_ps ? st->busy_until_ps - now_ps : 0;
	__u64 q = work / per_byte;

	if (q + wire <= cf->limit)
		st->busy_until_ps = now_ps + work + wire * per_byte;
	return q;
}

#else

struct hlist_node {
	struct hlist_node *next;
} __attribute__((preserve_access_index));

struct hlist_head {
	struct hlist_node *first;
} __attribute__((preserve_access_index));

struct gnet_stats_queue {
	__u32 backlog;
} __attribute__((preserve_access_index));

struct Qdisc {
	__u32 handle;
	struct hlist_node hash;
	struct gnet_stats_queue qstats;
} __attribute__((preserve_access_index));

struct net_device {
	struct hlist_head qdisc_hash[16];
} __attribute__((preserve_access_index));

struct sk_buff {
	unsigned int len;
	struct net_device *dev;
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *obj) __ksym;
extern void *bpf_rdonly_cast(void *obj, __u32 btf_id) __ksym;

/* hash_32() of include/linux/hash.h for a table of 16 buckets, as net/sched/sch_api.c files qdiscs by handle. */
#define BUCKET(handle) (((__u32)(handle) * 0x61C88647u) >> 28)
#define CHAIN 4

static __always_inline __u32 leaf_backlog(struct hlist_node *node, __u32 handle)
{
	struct Qdisc *q;

	for (int i = 0; i < CHAIN && node; i++) {
		q = bpf_rdonly_cast((void *)node - bpf_core_field_offset(struct Qdisc, hash),
				    bpf_core_type_id_kernel(struct Qdisc));
		if (q->handle == handle)
			return q->qstats.backlog;
		node = q->hash.next;
	}
	return 0;
}

/* Bytes that wait in the FIFO of one class; the handles are those of shaper.py. */
static __always_inline __u32 backlog_of(struct __sk_buff *ctx, __u32 cls)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct net_device *dev = skb->dev;

	if (cls == DATA)
		return leaf_backlog(dev->qdisc_hash[BUCKET(0x200000)].first, 0x200000);
	if (cls == CONTROL)
		return leaf_backlog(dev->qdisc_hash[BUCKET(0x100000)].first, 0x100000);
	return leaf_backlog(dev->qdisc_hash[BUCKET(0x300000)].first, 0x300000);
}

#endif

struct packet {
	__u32 l4;    /* offset of the UDP header; 0: none */
	__u8 dscp;
	__u8 ecn;
	bool ipv6;
	bool roce;
};

/* Puts the headers into linear memory where they are not (a packet socket's long frame begins with 14 bytes of it). */
static __always_inline void parse(struct __sk_buff *ctx, struct packet *p)
{
	__u32 want = ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct udphdr);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct udphdr *udp = NULL;
	__be16 proto;

	if (data + want > end && ctx->len > (__u32)(ctx->data_end - ctx->data)) {
		bpf_skb_pull_data(ctx, ctx->len < want ? ctx->len : want);
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
	}
	if (data + ETH_HLEN > end)
		return;
	proto = ((struct ethhdr *)data)->h_proto;
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = data + ETH_HLEN;

		if ((void *)(ip + 1) > end)
			return;
		p->dscp = ip->tos >> 2;
		p->ecn = ip->tos & 3;
		if (ip->protocol == IPPROTO_UDP && ip->ihl == 5 && !(ip->frag_off & bpf_htons(0x1fff)))
			p->l4 = ETH_HLEN + sizeof(*ip);
		udp = (void *)(ip + 1);
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = data + ETH_HLEN;
		__u8 tclass;

		if ((void *)(ip6 + 1) > end)
			return;
		tclass = ip6->priority << 4 | ip6->flow_lbl[0] >> 4;
		p->ipv6 = true;
		p->dscp = tclass >> 2;
		p->ecn = tclass & 3;
		if (ip6->nexthdr == IPPROTO_UDP)
			p->l4 = ETH_HLEN + sizeof(*ip6);
		udp = (void *)(ip6 + 1);
	}
	if (p->l4 && udp && (void *)(udp + 1) <= end)
		p->roce = udp->dest == bpf_htons(ROCE_PORT);
	if (!p->roce)
		p->l4 = 0;
}

/* Cuts the packet behind the transport headers and rewrites lengths and DSCP; false if the kernel would not. */
static __always_inline bool trim(struct __sk_buff *ctx, const struct packet *p, __u32 len, __u8 dscp)
{
	__be16 udp_len = bpf_htons(len - p->l4), none = 0;

	if (bpf_skb_change_tail(ctx, len, 0))
		return false;
	if (p->ipv6) {
		__be16 payload = udp_len;
		__u8 first[2];

		if (bpf_skb_load_bytes(ctx, ETH_HLEN, first, 2))
			return false;
		first[0] = (first[0] & 0xf0) | dscp >> 2;
		first[1] = (first[1] & 0x3f) | (__u8)(dscp << 6);
		bpf_skb_store_bytes(ctx, ETH_HLEN, first, 2, 0);
		bpf_skb_store_bytes(ctx, ETH_HLEN + offsetof(struct ipv6hdr, payload_len), &payload, 2, 0);
	} else {
		__be16 old, new;

		if (bpf_skb_load_bytes(ctx, ETH_HLEN, &old, 2))
			return false;
		new = (old & bpf_htons(0xff03)) | bpf_htons(dscp << 2);
		bpf_l3_csum_replace(ctx, ETH_HLEN + offsetof(struct iphdr, check), old, new, 2);
		bpf_skb_store_bytes(ctx, ETH_HLEN, &new, 2, 0);
		if (bpf_skb_load_bytes(ctx, ETH_HLEN + offsetof(struct iphdr, tot_len), &old, 2))
			return false;
		new = bpf_htons(len - ETH_HLEN);
		bpf_l3_csum_replace(ctx, ETH_HLEN + offsetof(struct iphdr, check), old, new, 2);
		bpf_skb_store_bytes(ctx, ETH_HLEN + offsetof(struct iphdr, tot_len), &new, 2, 0);
	}
	bpf_skb_store_bytes(ctx, p->l4 + offsetof(struct udphdr, len), &udp_len, 2, 0);
	bpf_skb_store_bytes(ctx, p->l4 + offsetof(struct udphdr, check), &none, 2, 0);
	return true;
}

/* The helper refuses a header that is shared with a capture; a pull makes it our own. */
static __always_inline bool mark(struct __sk_buff *ctx)
{
	if (bpf_skb_ecn_set_ce(ctx))
		return true;
	return !bpf_skb_pull_data(ctx, ETH_HLEN + sizeof(struct iphdr)) && bpf_skb_ecn_set_ce(ctx);
}

SEC("tc")
int port_egress(struct __sk_buff *ctx)
{
	__u32 key = ctx->tc_classid - 1, wire = ctx->len + WIRE_OVERHEAD, q, bin, limit, cls = DATA;
	bool lose = false, fits, cut = false, set_ce = false;
	struct packet p = {};
	struct config *cf = bpf_map_lookup_elem(&port_config, &key);
	struct stats *st = bpf_map_lookup_elem(&port_stats, &key);
	struct class_stats *cs;
#ifdef VIRTUAL_QUEUE
	__u64 now_ps = bpf_ktime_get_ns() * 1000;
#endif

	if (!cf || !st || !cf->bin)
		return TC_ACT_OK;
	parse(ctx, &p);
	/* A kernel socket leaves its own random hash with the packet, which ECMP would take for the addresses' and ports'
	 * (net/ipv4/route.c, fib_multipath_hash); no wire carries one. */
	bpf_set_hash_invalid(ctx);
	if (p.dscp == DSCP_CONTROL)
		cls = CONTROL;
	else if (p.dscp == DSCP_TRIMMED || p.dscp == DSCP_TRIMMED_LAST_HOP)
		cls = TRIMMED;
	limit = cls == DATA ? cf->limit : cf->limit_other;
	q = backlog_of(ctx, cls);

	bpf_spin_lock(&st->lock);
#ifdef VIRTUAL_QUEUE
	q = virtual_backlog(st, cf, now_ps, wire);
#endif
	if (cf->loss)
		lose = draw(&st->loss_state) < cf->loss;
	fits = q + wire <= limit;
	if (p.ecn)
		st->ect++;
	if (q >= cf->kmin && cls == DATA)
		st->above_kmin++;
	/* CONTROL 0, DATA 1, TRIMMED 2: a constant index each, the verifier knows no better */
	cs = cls == DATA ? &st->cls[DATA] : cls == CONTROL ? &st->cls[CONTROL] : &st->cls[TRIMMED];
	cs->packets++;
	cs->bytes += ctx->len;
	cs->backlog_sum += q;
	if (q > cs->backlog_max)
		cs->backlog_max = q;
	bin = q / cf->bin;
	if (bin >= BINS)
		bin = BINS - 1;
	if (cls == DATA)
		st->histogram[1][bin & (BINS - 1)]++;
	else if (cls == CONTROL)
		st->histogram[0][bin & (BINS - 1)]++;
	if (lose) {
		st->lost++;
	} else if (!fits && cls == DATA && (cf->flags & FLAG_TRIM) && p.roce &&
		   ctx->len > p.l4 + sizeof(struct udphdr) + cf->trim) {
		cut = true;
	} else if (!fits) {
		st->overflow++;
	} else if (cls == DATA && (cf->flags & FLAG_MARK) && (p.ecn == 1 || p.ecn == 2) && q > cf->kmin) {
		if (q > cf->kmax)
			set_ce = true;
		else
			set_ce = draw(&st->mark_state) < cf->pmax * (q - cf->kmin) / (cf->kmax - cf->kmin);
	}
	if (p.ecn == 3 && (lose || (!fits && !cut)))
		st->ce_dropped++;
	bpf_spin_unlock(&st->lock);

	/* Stolen, not shot: a sender's own port would else answer ENOBUFS to a loss that the wire made. */
	if (lose)
		return TC_ACT_STOLEN;
	if (cut) {
		bool last = cf->flags & FLAG_LAST_HOP;

		if (trim(ctx, &p, p.l4 + sizeof(struct udphdr) + cf->trim, last ? DSCP_TRIMMED_LAST_HOP : DSCP_TRIMMED)) {
			cls = TRIMMED;
			__sync_fetch_and_add(&st->trimmed, 1);
		} else {
			__sync_fetch_and_add(&st->overflow, 1);
		}
	}
	if (set_ce) {
		if (mark(ctx))
			__sync_fetch_and_add(&st->marked, 1);
		else
			__sync_fetch_and_add(&st->unmarked, 1);
	}
	/* HTB takes a priority that names one of its classes without asking a filter (net/sched/sch_htb.c, htb_classify). */
	ctx->priority = cls == DATA ? 0x10020 : cls == CONTROL ? 0x10010 : 0x10030;
	return TC_ACT_OK;
}

/*
 * On a host's ingress where the agent delays by itself: its packet socket (ETH_P_ALL) has the frame already; the kernel's
 * UDP code must not see it, or it answers with an ICMP error.
 */
SEC("tc")
int drop_roce(struct __sk_buff *ctx)
{
	struct packet p = {};

	parse(ctx, &p);
	return p.roce ? TC_ACT_STOLEN : TC_ACT_OK;
}

#ifndef VIRTUAL_QUEUE
/* Reads a known value the way backlog_of() does: some kernels load such a program and read zeros. */
SEC("tc")
int probe(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_rdonly_cast(bpf_cast_to_kern_ctx(ctx), bpf_core_type_id_kernel(struct sk_buff));

	return skb->len;
}
#endif
