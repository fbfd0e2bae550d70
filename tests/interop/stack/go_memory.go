// go_memory DEVICE GID_INDEX SEED SECONDS: slices of Go's heap under regions.
//
// Slices are made, filled, grown and dropped at random, and Go's runtime, which makes its system calls by itself, gives
// freed memory back to the kernel. Regions are kept for a while after that, as a registration cache does. One queue pair
// writes into and reads from slices by way of another one. After each step all slices have the bytes that they should
// have, and new ones are zero. Prints the number of steps.
package main

/*
#cgo LDFLAGS: -libverbs
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>

static const int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct pair {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qps[2];
};

static int connect_to(struct ibv_qp* qp, uint32_t peer, union ibv_gid gid, int index) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = kAccess};
  int wrong = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (wrong) return wrong;
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
                              .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
                              .ah_attr = {.is_global = 1, .port_num = 1,
                                          .grh = {.dgid = gid, .sgid_index = index, .hop_limit = 64}}};
  wrong = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (wrong) return wrong;
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                      IBV_QP_MAX_QP_RD_ATOMIC);
}

// 0, or an errno.
static int open_pair(const char* device, int index, struct pair* pair) {
  struct ibv_device** const all = ibv_get_device_list(NULL);
  struct ibv_device** its = all;
  while (its != NULL && *its != NULL && strcmp(ibv_get_device_name(*its), device) != 0) ++its;
  if (its == NULL || *its == NULL) return ENODEV;
  pair->context = ibv_open_device(*its);
  ibv_free_device_list(all);
  if (pair->context == NULL) return errno;
  pair->pd = ibv_alloc_pd(pair->context);
  pair->cq = ibv_create_cq(pair->context, 16, NULL, NULL, 0);
  union ibv_gid gid;
  if (pair->pd == NULL || pair->cq == NULL || ibv_query_gid(pair->context, 1, index, &gid) != 0) return errno;
  for (int i = 0; i < 2; ++i) {
    struct ibv_qp_init_attr init = {.send_cq = pair->cq, .recv_cq = pair->cq, .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    if ((pair->qps[i] = ibv_create_qp(pair->pd, &init)) == NULL) return errno;
  }
  for (int i = 0; i < 2; ++i) {
    const int wrong = connect_to(pair->qps[i], pair->qps[1 - i]->qp_num, gid, index);
    if (wrong) return wrong;
  }
  return 0;
}

static struct ibv_mr* region(struct pair* pair, uintptr_t addr, size_t length) {
  return ibv_reg_mr(pair->pd, (void*)addr, length, kAccess);
}

// The status of its completion, or -1.
static int copy(struct pair* pair, int reads, struct ibv_mr* local, struct ibv_mr* remote, uint32_t length) {
  struct ibv_sge sge = {(uintptr_t)local->addr, length, local->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                           .send_flags = IBV_SEND_SIGNALED,
                           .wr.rdma = {(uintptr_t)remote->addr, remote->rkey}};
  struct ibv_send_wr* bad;
  struct ibv_wc wc;
  if (ibv_post_send(pair->qps[0], &wr, &bad) != 0) return -1;
  for (;;) {
    const int count = ibv_poll_cq(pair->cq, 1, &wc);
    if (count != 0) return count < 0 ? -1 : (int)wc.status;
  }
}
*/
import "C"

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

const (
	slices  = 16
	most    = 1 << 20
	regions = 24
)

func fail(format string, values ...any) {
	fmt.Printf("FAILED: "+format+"\n", values...)
	os.Exit(1)
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fail("'%s' is no number", text)
	}
	return value
}

var (
	pair C.struct_pair
	kept []*C.struct_ibv_mr
)

// region makes a new one; the oldest ends. What it is of may be freed before that.
func region(slice []byte) *C.struct_ibv_mr {
	mr, err := C.region(&pair, C.uintptr_t(uintptr(unsafe.Pointer(&slice[0]))), C.size_t(len(slice)))
	if mr == nil {
		fail("register %d bytes: %v", len(slice), err)
	}
	kept = append(kept, mr)
	if len(kept) > regions {
		C.ibv_dereg_mr(kept[0])
		kept = kept[1:]
	}
	return mr
}

func main() {
	device, index := os.Args[1], number(os.Args[2])
	random, seconds := rand.New(rand.NewSource(number(os.Args[3]))), number(os.Args[4])
	if wrong := C.open_pair(C.CString(device), C.int(index), &pair); wrong != 0 {
		fail("open %s: %v", device, syscall.Errno(wrong))
	}
	var all, right [slices][]byte
	some := func(length int) []byte {
		made := make([]byte, length)
		random.Read(made)
		return made
	}
	step := 0
	for over := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(over); step++ {
		one, other := random.Intn(slices), random.Intn(slices)
		length := 1 + random.Intn(5000)
		if random.Intn(2) == 0 {
			length = 1 + random.Intn(most)
		}
		what := random.Intn(7)
		switch {
		case all[one] == nil:
			all[one], right[one] = make([]byte, length), make([]byte, length)
		case what == 0:
			all[one], right[one] = nil, nil
		case what == 1: // a larger one, with the bytes of this one
			more := some(length)
			all[one], right[one] = append(all[one], more...), append(right[one], more...)
			if len(all[one]) > 4*most {
				all[one], right[one] = nil, nil
			}
		case what == 2:
			copy(all[one], some(len(all[one])))
			copy(right[one], all[one])
		case what == 3 && random.Intn(8) == 0:
			debug.FreeOSMemory() // garbage is collected, and its pages go back to the kernel
		case one != other && all[other] != nil:
			source, target := one, other
			if what == 4 {
				source, target = other, one
			}
			length = len(all[one])
			if len(all[other]) < length {
				length = len(all[other])
			}
			reads := C.int(0)
			if what == 4 {
				reads = 1
			}
			if status := C.copy(&pair, reads, region(all[one]), region(all[other]), C.uint32_t(length)); status != 0 {
				fail("a request ended with status %d", status)
			}
			copy(right[target], right[source][:length])
		}
		for i := range all {
			if !bytes.Equal(all[i], right[i]) {
				fail("step %d: a slice has other bytes than it should", step)
			}
		}
	}
	runtime.KeepAlive(all)
	for _, mr := range kept {
		C.ibv_dereg_mr(mr)
	}
	fmt.Printf("%d steps\n", step)
}
