/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder. The linker leads the library's calls of the persistence module through the functions at the end (--wrap), which
 * note where the call came from; the module itself (PM_RECORD) then tells what it does.
 */
#include "crash/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "harness.h"
#include "pm/pm.h"

#define BYTES ((size_t)KERN_BLOCKS * KERN_BLOCK)

struct mutant mutant;
struct site sites[SITES_MAX];
int nsites;

static struct trace *trace;
static uint16_t op_now;
static enum cpu cpu_now;
static void *pm_site;
static int memfd = -1;
static uint8_t *memory;
static uint32_t memory_used;

/* Stores that the mutant keeps back. */
static struct {
	struct event ev;
	uint8_t bytes[KERN_BLOCK];
} deferred[16];
static unsigned ndeferred;

int record_memfd(void)
{
	if (memfd < 0) {
		memfd = memfd_create("persistent-memory", MFD_CLOEXEC);
		CHECK(memfd >= 0 && ftruncate(memfd, BYTES) == 0);
		memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
		CHECK(memory != MAP_FAILED);
	}
	return memfd;
}

void record_forked(void)
{
	close(memfd);
	munmap(memory, BYTES);
	memfd = -1;
	memory_used = 0;
}

uint8_t *record_memory(void)
{
	record_memfd();
	return memory;
}

void record_reset_memory(void)
{
	memset(record_memory(), 0, (size_t)memory_used * KERN_BLOCK);
	memory_used = 0;
}

uint64_t hash_bytes(uint64_t seed, const void *p, size_t n)
{
	const uint8_t *s = p;
	uint64_t h = seed ^ 0x9e3779b97f4a7c15ull, v;

	for (; n >= 8; n -= 8, s += 8) {
		memcpy(&v, s, 8);
		h = (h ^ v) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	v = 0;
	memcpy(&v, s, n);
	h = (h ^ v ^ n) * 0xc4ceb9fe1a85ec53ull;
	return h ^ h >> 29;
}

/* ---- the log of events */

static struct event *add(enum event_kind kind, void *site)
{
	struct event *e;

	if (trace->n == trace->room) {
		trace->room = trace->room ? trace->room * 2 : 1024;
		trace->ev = reallocarray(trace->ev, trace->room, sizeof(*trace->ev));
		CHECK(trace->ev);
	}
	e = &trace->ev[trace->n++];
	*e = (struct event){.kind = (uint8_t)kind, .op = op_now, .cpu = (uint8_t)cpu_now, .site = site};
	return e;
}

static uint32_t keep(const void *src, size_t n)
{
	const uint32_t at = trace->nbytes;

	if (trace->nbytes + n > trace->bytes_room) {
		trace->bytes_room = (trace->bytes_room + (uint32_t)n) * 2 + (1 << 16);
		trace->bytes = realloc(trace->bytes, trace->bytes_room);
		CHECK(trace->bytes);
	}
	if (src)
		memcpy(trace->bytes + at, src, n);
	else
		memset(trace->bytes + at, 0, n);
	trace->nbytes += (uint32_t)n;
	return at;
}

static void snapshot(void)
{
	if (trace->nmeta == trace->meta_room) {
		trace->meta_room = trace->meta_room ? trace->meta_room * 2 : 64;
		trace->meta = reallocarray(trace->meta, trace->meta_room, sizeof(*trace->meta));
		trace->meta_hash = reallocarray(trace->meta_hash, trace->meta_room, sizeof(*trace->meta_hash));
		CHECK(trace->meta && trace->meta_hash);
	}
	trace->meta[trace->nmeta] = kern.m;
	trace->meta_hash[trace->nmeta] = hash_bytes(1, &kern.m, sizeof(kern.m));
	trace->nmeta++;
}

static void see_site(enum event_kind kind, void *at)
{
	for (int i = 0; i < nsites; i++) {
		if (sites[i].at == at && sites[i].kind == kind) {
			sites[i].calls++;
			return;
		}
	}
	CHECK(nsites < SITES_MAX);
	sites[nsites++] = (struct site){at, (uint8_t)kind, 1};
}

static bool is_mutant(enum mutant_kind kind, const void *site)
{
	return mutant.kind == kind && mutant.site == site;
}

static void let_go(void)
{
	for (unsigned i = 0; i < ndeferred; i++) {
		struct event *e = add(deferred[i].ev.kind, deferred[i].ev.site);
		const uint32_t n = e->len = deferred[i].ev.len;

		e->at = deferred[i].ev.at;
		e->ino = deferred[i].ev.ino;
		if (e->kind == EV_STORE || e->kind == EV_NT)
			e->data = keep(deferred[i].bytes, n);
	}
	ndeferred = 0;
}

/* One event of the persistence module, cut at the borders of blocks. */
static void on_pm(void *ctx, enum pm_event_kind kind, void *dst, const void *src, size_t n)
{
	static const enum event_kind kinds[] = {EV_STORE, EV_NT, EV_FLUSH, EV_FENCE};
	const enum event_kind ev = kinds[kind];

	(void)ctx;
	if (ev == EV_FENCE || (ev == EV_FLUSH && !is_mutant(MUT_DEFER_STORE, pm_site)) || ev == EV_STORE || ev == EV_NT)
		see_site(ev, pm_site);
	if (ev == EV_FENCE) {
		if (!is_mutant(MUT_DROP_FENCE, pm_site))
			add(EV_FENCE, pm_site);
		let_go();
		return;
	}
	if (ev == EV_FLUSH && is_mutant(MUT_DROP_FLUSH, pm_site))
		return;
	if (ev != EV_FLUSH)
		kern_fault(dst, n);
	for (size_t done = 0, part; done < n; done += part) {
		uint64_t at;
		uint32_t ino;
		struct event *e;

		if (!kern_address((char *)dst + done, &at, &part, &ino)) {
			if (ev != EV_FLUSH)
				FAIL("a store to %p, which is no persistent memory", dst);
			part = KERN_BLOCK - ((uintptr_t)dst + done) % KERN_BLOCK;
			continue;
		}
		part = part < n - done ? part : n - done;
		if (is_mutant(MUT_DEFER_STORE, pm_site) && ndeferred < sizeof(deferred) / sizeof(deferred[0])) {
			deferred[ndeferred].ev = (struct event){.kind = (uint8_t)ev,
								.ino = (uint8_t)ino,
								.at = (uint32_t)at,
								.len = (uint32_t)part,
								.site = pm_site};
			if (ev != EV_FLUSH && src)
				memcpy(deferred[ndeferred].bytes, (const char *)src + done, part);
			else
				memset(deferred[ndeferred].bytes, 0, part);
			ndeferred++;
			continue;
		}
		e = add(ev, pm_site);
		e->ino = (uint8_t)ino;
		e->at = (uint32_t)at;
		e->len = (uint32_t)part;
		if (ev != EV_FLUSH)
			e->data = keep(src ? (const char *)src + done : NULL, part);
	}
}

void record_store(void *dst, const void *src, size_t n)
{
	kern_fault(dst, n);
	for (size_t done = 0, part; done < n; done += part) {
		uint64_t at;
		uint32_t ino;
		struct event *e;

		CHECK(kern_address((char *)dst + done, &at, &part, &ino));
		part = part < n - done ? part : n - done;
		e = add(EV_STORE, NULL);
		e->ino = (uint8_t)ino;
		e->at = (uint32_t)at;
		e->len = (uint32_t)part;
		e->data = keep((const char *)src + done, part);
	}
	memcpy(dst, src, n);
}

static void on_data(uint32_t ino, uint8_t *dst, const void *src, size_t n)
{
	struct event *e = add(EV_KERNEL, NULL);

	e->ino = (uint8_t)ino;
	e->at = (uint32_t)(dst - kern.pm);
	e->len = (uint32_t)n;
	e->data = keep(src, n);
	e->index = src == NULL;
}

static void on_meta(uint64_t touched)
{
	struct event *e = add(EV_META, NULL);

	e->index = trace->nmeta;
	e->touched = touched;
	snapshot();
}

static void on_sync(uint32_t ino, void *site)
{
	see_site(EV_SYNC, site);
	if (!is_mutant(MUT_DROP_SYNC, site) && !(mutant.kind == MUT_RECOVERY_UNSYNCED && kern.on_touch))
		add(EV_SYNC, site)->ino = (uint8_t)ino;
}

static void on_commit(uint32_t ino)
{
	add(EV_COMMIT, NULL)->ino = (uint8_t)ino;
}

void record_start(struct trace *t)
{
	static const struct pm_recorder recorder = {on_pm, NULL};

	trace = t;
	t->n = t->nbytes = t->nmeta = 0;
	op_now = 0;
	cpu_now = CPU_APP;
	ndeferred = 0;
	snapshot();
	pm_record(&recorder);
	kern.on_meta = on_meta;
	kern.on_data = on_data;
	kern.on_sync = on_sync;
	kern.on_commit = on_commit;
}

void record_stop(void)
{
	let_go();
	trace->end_block = kern.next_block;
	if (kern.pm == memory)
		memory_used = kern.next_block;
	pm_record(NULL);
	kern.on_meta = NULL;
	kern.on_data = NULL;
	kern.on_sync = NULL;
	kern.on_commit = NULL;
	trace = NULL;
}

void record_cpu(enum cpu cpu)
{
	cpu_now = cpu;
}

void record_service(int process)
{
	cpu_now = process ? CPU_APP_2 : CPU_APP;
	add(EV_FENCE, NULL);
	cpu_now = process ? CPU_SERVICE_2 : CPU_SERVICE;
}

enum cpu record_cpu_now(void)
{
	return cpu_now;
}

void record_op(enum event_kind kind, uint32_t op)
{
	op_now = (uint16_t)op;
	add(kind, NULL)->index = op;
}

void record_free(struct trace *t)
{
	free(t->ev);
	free(t->bytes);
	free(t->meta);
	free(t->meta_hash);
	memset(t, 0, sizeof(*t));
}

/* ---- the persistence module, with the place it is called from */

#define PM_WRAP(name, params, args)                                                                                            \
	void __real_##name params;                                                                                             \
	void __wrap_##name params;                                                                                             \
	void __wrap_##name params                                                                                              \
	{                                                                                                                      \
		pm_site = __builtin_return_address(0);                                                                         \
		__real_##name args;                                                                                            \
	}

PM_WRAP(pm_copy, (void *dst, const void *src, size_t n), (dst, src, n))
uint32_t __real_pm_copy_crc(uint32_t crc, void *dst, const void *src, size_t n);
uint32_t __wrap_pm_copy_crc(uint32_t crc, void *dst, const void *src, size_t n);
uint32_t __wrap_pm_copy_crc(uint32_t crc, void *dst, const void *src, size_t n)
{
	pm_site = __builtin_return_address(0);
	return __real_pm_copy_crc(crc, dst, src, n);
}
PM_WRAP(pm_store, (void *dst, const void *src, size_t n), (dst, src, n))
PM_WRAP(pm_zero, (void *dst, size_t n), (dst, n))
PM_WRAP(pm_copy_line, (void *dst, const void *src), (dst, src))
PM_WRAP(pm_store64, (uint64_t * dst, uint64_t value), (dst, value))
PM_WRAP(pm_store_word, (uint64_t * dst, uint64_t value), (dst, value))
PM_WRAP(pm_flush, (const void *p, size_t n), (p, n))
PM_WRAP(pm_fence, (void), ())
