/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random clients against a model. A client stages blocks as the library does (a new block for each write, with the bytes around
 * it carried over; the last block continued in place), relinks any part of its table in any order, retires or not, and dies
 * anywhere. After recovery, and after a second one with the same log put back, each file is what the calls that returned made of it.
 */
#include "world.h"

#define BLOCKS 24u
#define BYTES  (BLOCKS * SFS_BLOCK)

struct model {
	unsigned char data[BYTES];
	uint64_t size;
};

struct staged {
	uint32_t block[BLOCKS]; /* 1 + block of the staging file, 0: in the file */
};

static uint64_t rng;

static void file_write(int fd, const void *p, size_t n, uint64_t off)
{
	CHECK_EQ(pwrite(fd, p, n, (off_t)off), n);
}

/* One write: bytes, then records (as one group), then the model. With `torn`, the last record is not stored. */
static void client_write(struct world *w, struct world_log *l, struct world_file *f, struct model *m, struct staged *s,
			 uint32_t *next, bool torn)
{
	const uint64_t len = 1 + test_below(&rng, test_below(&rng, 3) ? 300 : 3 * SFS_BLOCK);
	const uint64_t off = test_below(&rng, 3) ? m->size : test_below(&rng, m->size + 1);
	const unsigned char byte = (unsigned char)(1 + test_below(&rng, 255));
	uint64_t at = off, size;
	struct sfs_record recs[BLOCKS];
	int n = 0, total;

	if (off + len > BYTES || *next + 5 > WORLD_CHUNK / SFS_BLOCK || l->slot + 10 > l->slots)
		return;
	size = off + len > m->size ? off + len : m->size;
	while (at < off + len) {
		const uint64_t blk = at / SFS_BLOCK,
			       end = (blk + 1) * SFS_BLOCK < off + len ? (blk + 1) * SFS_BLOCK : off + len;
		uint32_t to;
		unsigned char buf[SFS_BLOCK];

		if (s->block[blk] && at == m->size && at % SFS_BLOCK) {
			to = s->block[blk] - 1; /* continues in place */
		} else {
			to = (*next)++;
			memcpy(buf, m->data + blk * SFS_BLOCK, SFS_BLOCK);
			file_write(l->chunk_fd, buf, SFS_BLOCK, (uint64_t)to * SFS_BLOCK);
		}
		memset(buf, byte, end - at);
		file_write(l->chunk_fd, buf, end - at, (uint64_t)to * SFS_BLOCK + at % SFS_BLOCK);
		recs[n] = world_record(l, f, at, (uint32_t)(end - at), (uint64_t)to * SFS_BLOCK + at % SFS_BLOCK, size);
		if (test_below(&rng, 2)) {
			recs[n].flags |= SFS_REC_DATA_CRC;
			recs[n].data_crc = crc32c(0, buf, end - at);
		}
		n++;
		if (!torn)
			s->block[blk] = to + 1;
		at = end;
	}
	total = n;
	for (int i = 0; i < total; i++) {
		recs[i].group_pos = (uint8_t)i;
		recs[i].group_left = (uint8_t)(total - 1 - i);
		if (torn && i == total - 1)
			l->slot++;
		else
			world_put(w, l, &recs[i]);
	}
	if (torn)
		return;
	memset(m->data + off, byte, len);
	m->size = size;
}

/* Relink some of what is staged: whole blocks leave a hole behind or not, the edge at the end is copied. */
static void client_relink(struct world_log *l, struct world_file *f, const struct model *m, struct staged *s, bool everything)
{
	for (uint64_t blk = 0; blk < BLOCKS; blk++) {
		const uint64_t end = (blk + 1) * SFS_BLOCK < m->size ? (blk + 1) * SFS_BLOCK : m->size;
		unsigned char buf[SFS_BLOCK];
		off_t from;

		if (!s->block[blk] || (!everything && test_below(&rng, 2)))
			continue;
		from = (off_t)(s->block[blk] - 1) * SFS_BLOCK;
		CHECK_EQ(pread(l->chunk_fd, buf, SFS_BLOCK, from), SFS_BLOCK);
		file_write(f->fd, buf, end - blk * SFS_BLOCK, blk * SFS_BLOCK);
		if (end == (blk + 1) * SFS_BLOCK && test_below(&rng, 3))
			CHECK_EQ(fallocate(l->chunk_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, SFS_BLOCK), 0);
		s->block[blk] = 0;
	}
}

static void life(int round)
{
	struct world w;
	struct world_log l;
	struct world_file f[2];
	static struct model m[2];
	struct staged s[2] = {0};
	uint32_t next = 0;
	char *image = NULL;
	struct stat st;

	world_new(&w);
	world_log(&w, &l, 1, 256);
	memset(m, 0, sizeof(m));
	for (int i = 0; i < 2; i++) {
		f[i] = world_file(&w, i ? "g" : "f", 'o', i ? 5000 : 0);
		m[i].size = i ? 5000 : 0;
		memset(m[i].data, 'o', m[i].size);
		world_allow(&l, &f[i]);
	}
	for (int k = (int)test_below(&rng, 60); k > 0; k--) {
		const int i = (int)test_below(&rng, 2);
		const uint64_t what = test_below(&rng, 12);

		if (what < 10) {
			client_write(&w, &l, &f[i], &m[i], &s[i], &next, false);
		} else if (what == 10) {
			client_relink(&l, &f[i], &m[i], &s[i], true);
			world_done(&w, &l, f[i].ino, f[i].gen, 0);
		}
	}
	/* It dies in a write, in a relink, or after one before it could say so. */
	for (int i = 0; i < 2; i++) {
		if (test_below(&rng, 3) == 0)
			client_write(&w, &l, &f[i], &m[i], &s[i], &next, true);
		if (test_below(&rng, 2))
			client_relink(&l, &f[i], &m[i], &s[i], test_below(&rng, 2));
	}
	CHECK_EQ(fstat(l.fd, &st), 0);
	image = malloc((size_t)st.st_size);
	CHECK_EQ(pread(l.fd, image, (size_t)st.st_size, 0), st.st_size);
	for (int twice = 0; twice < 2; twice++) {
		const struct sfs_recover_how how = {0};
		struct sfs_recovery sum = {0};
		struct sfs_why why = {0};

		if (sfs_recover_log(&w.root, 1, &l.lease, &how, &sum, &why))
			FAIL("round %d: %s", round, why.text);
		CHECK_EQ(sum.quarantined, 0);
		for (int i = 0; i < 2; i++) {
			static unsigned char found[BYTES + 1];
			const ssize_t n = pread(f[i].fd, found, sizeof(found), 0);

			if (n != (ssize_t)m[i].size)
				FAIL("round %d: file %d is %zd bytes long, expected %llu", round, i, n,
				     (unsigned long long)m[i].size);
			CHECK_MEM(found, m[i].data, m[i].size);
		}
		/* The log is cleared: nothing counts any more. */
		memset(&sum, 0, sizeof(sum));
		CHECK_EQ(sfs_recover_log(&w.root, 1, &l.lease, &how, &sum, &why), 0);
		CHECK_EQ(sum.records, 0);
		/* As if it had been killed just before the log was cleared. */
		CHECK_EQ(pwrite(l.fd, image, (size_t)st.st_size, 0), st.st_size);
	}
	free(image);
	world_log_close(&l);
	close(f[0].fd);
	close(f[1].fd);
	world_end(&w);
}

int main(void)
{
	rng = test_seed(5);
	for (int round = 0; round < 400; round++)
		life(round);
	return 0;
}
