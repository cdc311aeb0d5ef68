/* SPDX-License-Identifier: Apache-2.0 */
/* Records that are one operation: all of them have effect, or none (docs/recovery.md). */
#include "fresh.h"

/* Records of one operation count all together or not at all. */
static void groups(void)
{
	struct world_file f;
	struct sfs_recovery s;

	f = fresh_file(7, 3 * 4096);
	for (int whole = 0; whole < 3; whole++) {
		for (int i = 0; i < 3; i++) {
			struct sfs_record r =
				world_record(&l, &f, (uint64_t)i * 4096, 4096, (uint64_t)(whole * 3 + i) * 4096, 3 * 4096);
			char b[4096];

			memset(b, '0' + whole, sizeof(b));
			CHECK_EQ(pwrite(l.chunk_fd, b, sizeof(b), (off_t)r.stage_off), 4096);
			r.group_pos = (uint8_t)i;
			r.group_left = (uint8_t)(2 - i);
			if (whole == 1 && i == 1)
				l.slot++; /* never stored */
			else if (whole == 2 && i == 0)
				l.slot++;
			else
				world_put(&w, &l, &r);
		}
	}
	s = end();
	CHECK_EQ(s.records, 7);
	CHECK_EQ(s.replayed, 3);
	CHECK_EQ(s.ignored, 4);
	world_expect(&f, 3 * 4096, 0, 3 * 4096, '0');
	end_file(&f);
}

static struct world_file second_file(void)
{
	struct world_file g = world_file(&w, "g", 'o', 4096);

	world_allow(&l, &g);
	return g;
}

/* One record of a group of several files; lost: it is never stored. */
static void of_files(struct world_file *f, char c, unsigned pos, unsigned left, bool lost)
{
	struct sfs_record r = world_record(&l, f, 0, 4096, (uint64_t)l.slot * 4096, 4096);
	char b[4096];

	memset(b, c, sizeof(b));
	CHECK_EQ(pwrite(l.chunk_fd, b, sizeof(b), (off_t)r.stage_off), 4096);
	r.flags |= SFS_REC_FILES;
	r.group_pos = (uint8_t)pos;
	r.group_left = (uint8_t)left;
	if (lost)
		l.slot++;
	else
		world_put(&w, &l, &r);
}

/* An operation on two files counts for both or for none; what one of them has retired says nothing about the other. */
static void groups_of_files(void)
{
	struct world_file f, g;
	struct sfs_recovery s;

	for (int lost = 0; lost < 3; lost++) {
		f = fresh_file(30 + (uint32_t)lost * 2, 4096);
		g = second_file();
		of_files(&f, 'a', 0, 1, false);
		of_files(&g, 'a', 1, 0, false);
		of_files(&f, 'b', 0, 1, lost == 1);
		of_files(&g, 'b', 1, 0, lost == 2);
		s = end();
		CHECK_EQ(s.replayed, lost ? 2 : 4);
		world_expect(&f, 4096, 0, 4096, lost ? 'a' : 'b');
		world_expect(&g, 4096, 0, 4096, lost ? 'a' : 'b');
		close(g.fd);
		end_file(&f);
	}
	/* One of them is in its file already. */
	f = fresh_file(36, 4096);
	g = second_file();
	of_files(&f, 'a', 0, 1, false);
	of_files(&g, 'a', 1, 0, false);
	world_done(&w, &l, f.ino, f.gen, SFS_REC_DURABLE);
	s = end();
	CHECK_EQ(s.replayed, 1);
	world_expect(&f, 4096, 0, 4096, 'o');
	world_expect(&g, 4096, 0, 4096, 'a');
	close(g.fd);
	end_file(&f);
	/* Without the flag they are no group. */
	f = fresh_file(38, 4096);
	g = second_file();
	for (int i = 0; i < 2; i++) {
		struct sfs_record r = world_record(&l, i ? &g : &f, 0, 4096, 0, 4096);

		r.group_pos = (uint8_t)i;
		r.group_left = (uint8_t)(1 - i);
		world_put(&w, &l, &r);
	}
	s = end();
	CHECK_EQ(s.replayed, 0);
	CHECK_EQ(s.ignored, 2);
	close(g.fd);
	end_file(&f);
}

int main(void)
{
	groups();
	groups_of_files();
	return 0;
}
