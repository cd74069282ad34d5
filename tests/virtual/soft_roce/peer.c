/* A program on verbs: one RC queue pair of Soft-RoCE, brought up by hand, that does what its standard input says.
 *
 *   peer DEVICE MEMORY-FILE MTU PEER-IP PEER-QPN PEER-PSN OWN-PSN TIMEOUT
 *
 * The whole file is registered memory; others who map it see what RDMA wrote. First line out: QPN, R_Key, address.
 * Lines in, numbers decimal: verb, offset in the file, length, remote address, R_Key, two operands. Requests are posted
 * at once; `wait` with a number of them in the place of the offset is answered when so many have completed, by the
 * first status that is no success, in the words of libibverbs. `recv` is answered twice: when it is posted, and when
 * a message has come, with its length and immediate data.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	need(list != NULL, "ibv_get_device_list");
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	need(context != NULL, name);
	ibv_free_device_list(list);
	return context;
}

/* The entry of the GID table that is an IPv4 address (::ffff:a.b.c.d). */
static int ipv4_gid(struct ibv_context *context)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	union ibv_gid gid;

	for (int i = 0; i < 16; i++)
		if (!ibv_query_gid(context, 1, i, &gid) && !memcmp(gid.raw, mapped, sizeof(mapped)))
			return i;
	need(0, "no GID is an IPv4 address");
	return -1;
}

static enum ibv_mtu mtu_code(int bytes)
{
	return bytes == 4096 ? IBV_MTU_4096 : bytes == 2048 ? IBV_MTU_2048 : bytes == 1024 ? IBV_MTU_1024 : IBV_MTU_256;
}

static void bring_up(struct ibv_qp *qp, int gid, char **argv)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_code(atoi(argv[3])),
		.dest_qp_num = strtoul(argv[5], NULL, 10),
		.rq_psn = strtoul(argv[6], NULL, 10),
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = gid, .hop_limit = 64}},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = strtoul(argv[7], NULL, 10),
		.timeout = atoi(argv[8]),
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 16,
	};

	rtr.ah_attr.grh.dgid.raw[10] = rtr.ah_attr.grh.dgid.raw[11] = 0xff;
	need(inet_pton(AF_INET, argv[4], rtr.ah_attr.grh.dgid.raw + 12) == 1, "the peer's address");
	need(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");
	need(!ibv_modify_qp(qp, &rtr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "to RTR");
	need(!ibv_modify_qp(qp, &rts,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	     "to RTS");
}

/* The next completion, waited for in the kernel: a loop that polls would stop the virtual clock. */
static struct ibv_wc completion(struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
	struct ibv_wc wc;
	struct ibv_cq *which;
	void *context;
	int count;

	while (!(count = ibv_poll_cq(cq, 1, &wc))) {
		need(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
		if ((count = ibv_poll_cq(cq, 1, &wc)))
			break;
		need(!ibv_get_cq_event(channel, &which, &context), "ibv_get_cq_event");
		ibv_ack_cq_events(which, 1);
	}
	need(count == 1, "ibv_poll_cq");
	return wc;
}

static enum ibv_wr_opcode opcode_of(const char *verb)
{
	static const struct {
		const char *name;
		enum ibv_wr_opcode opcode;
	} verbs[] = {
		{"write", IBV_WR_RDMA_WRITE},	     {"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM},
		{"read", IBV_WR_RDMA_READ},	     {"send", IBV_WR_SEND},
		{"send_imm", IBV_WR_SEND_WITH_IMM},  {"fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD},
		{"compare_swap", IBV_WR_ATOMIC_CMP_AND_SWP},
	};

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(verbs[i].name, verb))
			return verbs[i].opcode;
	need(0, verb);
	return IBV_WR_SEND;
}

int main(int argc, char **argv)
{
	char line[256], verb[32];
	uint64_t offset, length, address, key, first, second;

	need(argc == 9, "arguments");
	struct ibv_context *context = open_device(argv[1]);
	int file = open(argv[2], O_RDWR);
	struct stat status;
	need(file >= 0 && !fstat(file, &status), argv[2]);
	uint8_t *memory = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	need(memory != MAP_FAILED, "mmap");

	struct ibv_pd *pd = ibv_alloc_pd(context);
	need(pd != NULL, "ibv_alloc_pd");
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, status.st_size,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					       IBV_ACCESS_REMOTE_ATOMIC);
	need(mr != NULL, "ibv_reg_mr");
	struct ibv_comp_channel *channels[2] = {ibv_create_comp_channel(context), ibv_create_comp_channel(context)};
	need(channels[0] && channels[1], "ibv_create_comp_channel");
	struct ibv_cq *sent = ibv_create_cq(context, 64, NULL, channels[0], 0);
	struct ibv_cq *received = ibv_create_cq(context, 64, NULL, channels[1], 0);
	need(sent && received, "ibv_create_cq");
	struct ibv_qp_init_attr wanted = {
		.send_cq = sent,
		.recv_cq = received,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 64, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &wanted);
	need(qp != NULL, "ibv_create_qp");
	bring_up(qp, ipv4_gid(context), argv);
	printf("%u %u %" PRIu64 "\n", qp->qp_num, mr->rkey, (uint64_t)(uintptr_t)memory);
	fflush(stdout);

	while (fgets(line, sizeof(line), stdin)) {
		need(sscanf(line, "%31s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, verb, &offset,
			    &length, &address, &key, &first, &second) == 7,
		     line);
		struct ibv_sge part = {.addr = (uintptr_t)(memory + offset), .length = length, .lkey = mr->lkey};
		if (!strcmp(verb, "recv")) {
			struct ibv_recv_wr buffer = {.sg_list = &part, .num_sge = 1}, *bad;
			need(!ibv_post_recv(qp, &buffer, &bad), "ibv_post_recv");
			puts("posted");
			fflush(stdout);
			struct ibv_wc wc = completion(channels[1], received);
			printf("%s %u %u\n", ibv_wc_status_str(wc.status), wc.byte_len,
			       wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : 0);
		} else if (!strcmp(verb, "wait")) {
			enum ibv_wc_status first_bad = IBV_WC_SUCCESS;
			for (uint64_t i = 0; i < offset; i++) {
				struct ibv_wc wc = completion(channels[0], sent);
				if (first_bad == IBV_WC_SUCCESS)
					first_bad = wc.status;
			}
			puts(ibv_wc_status_str(first_bad));
		} else {
			struct ibv_send_wr work = {.sg_list = &part, .num_sge = 1, .opcode = opcode_of(verb)}, *bad;
			if (work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
				work.wr.atomic.remote_addr = address;
				work.wr.atomic.rkey = key;
				work.wr.atomic.compare_add = first;
				work.wr.atomic.swap = second;
			} else {
				work.wr.rdma.remote_addr = address;
				work.wr.rdma.rkey = key;
				work.imm_data = htonl(first);
			}
			need(!ibv_post_send(qp, &work, &bad), "ibv_post_send");
		}
		fflush(stdout);
	}
	return 0;
}
