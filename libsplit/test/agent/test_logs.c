/* SPDX-License-Identifier: Apache-2.0 */
/* Logs begin small and grow, together within the volume's space for them; what is recorded in the new part counts. */
#include <sys/mman.h>

#include "played.h"

#define FIRST	   (20u << 10) /* bytes */
#define LOG_MOST   (64u << 10) /* of records */
#define LOG_SPACE  (1u << 20)
#define SPARE	   (SFS_SPARE_LOGS_MAX + SFS_KEPT_LOGS_MAX)
#define MANY	   200
#define SLOT_LATER 900u

static struct world w;
static struct played_agent a;

static int hello(struct played *c, uint64_t features, int proof)
{
	struct sfs_msg m = {.version = SFS_PROTO_OLDEST, .type = SFS_MSG_HELLO, .a = SFS_STRICT, .c = features};
	int fds[2];

	c->sock = played_connect(&a);
	CHECK(c->sock >= 0);
	CHECK_EQ(played_send(c->sock, &m, sizeof(m), &proof, 1), 0);
	CHECK_EQ(played_recv(c->sock, &m, fds, 2, PATIENCE), 1);
	if (m.status < 0)
		return m.status;
	CHECK_EQ(m.b >> SFS_FEATURES_SHIFT, features);
	c->log = (uint32_t)m.a;
	c->log_fd = fds[0];
	c->event = fds[1];
	c->chunk_bytes = m.c;
	return 0;
}

static uint64_t size_of(const struct played *c)
{
	struct stat st;

	CHECK_EQ(fstat(c->log_fd, &st), 0);
	return (uint64_t)st.st_size;
}

static struct sfs_log_header header_of(const struct played *c)
{
	struct sfs_log_header h;

	CHECK_EQ(pread(c->log_fd, &h, sizeof(h), 0), sizeof(h));
	return h;
}

static void grow(struct played *c)
{
	const uint64_t before = size_of(c);

	played_notify(c, SFS_MSG_GROW, 0, 0);
	EVENTUALLY(size_of(c) > before);
	EVENTUALLY(header_of(c).slots == (size_of(c) - SFS_LOG_RECORDS_OFFSET) / sizeof(struct sfs_record));
}

/* What every log takes, by the blocks of its file. */
static uint64_t all_logs(void)
{
	struct sfs_numbers logs, leases;
	struct sfs_why why = {0};
	uint64_t blocks = 0;

	CHECK_EQ(sfs_log_list(&w.root, &logs, &leases, &why), 0);
	for (uint32_t i = 0; i < logs.n; i++) {
		struct stat st;
		char name[32];

		sfs_number_name(name, logs.v[i], "");
		if (fstatat(w.root.log, name, &st, 0) == 0)
			blocks += (uint64_t)st.st_blocks;
	}
	sfs_numbers_free(&logs);
	sfs_numbers_free(&leases);
	return blocks * 512;
}

int main(void)
{
	const struct sfs_agent_config config = {
		.pool_bytes = 8u << 20, .chunk_bytes = WORLD_CHUNK, .log_bytes = LOG_MOST, .log_space = LOG_SPACE};
	static struct played many[MANY];
	struct world_file f;
	struct played c;
	uint32_t chunk = 0;
	char data[4096];
	int fd, grown = 0;

	world_new(&w);
	f = world_file(&w, "f", 'o', 0);
	agent_start_with(&a, &w, &config);
	/* One that knows of no growth has the whole at once. */
	CHECK_EQ(hello(&c, 0, f.fd), 0);
	CHECK_EQ(header_of(&c).slots, LOG_MOST / sizeof(struct sfs_record));
	CHECK_EQ(size_of(&c), SFS_LOG_RECORDS_OFFSET + LOG_MOST);
	played_close(&c);

	CHECK_EQ(hello(&c, SFS_FEATURE_GROW, f.fd), 0);
	CHECK_EQ(size_of(&c), FIRST);
	CHECK_EQ(header_of(&c).slots_max, LOG_MOST / sizeof(struct sfs_record));
	grow(&c);
	CHECK_EQ(header_of(&c).slots, LOG_MOST / sizeof(struct sfs_record));
	/* No more than that. */
	played_notify(&c, SFS_MSG_GROW, 0, 0);
	CHECK_EQ(played_acquire(&c, &f, 0), SFS_DELEG_EXCLUSIVE);
	CHECK_EQ(size_of(&c), SFS_LOG_RECORDS_OFFSET + LOG_MOST);
	/* A record in the new part is one. */
	fd = played_chunk(&c, &chunk);
	memset(data, 'g', sizeof(data));
	CHECK(fd >= 0 && pwrite(fd, data, sizeof(data), 0) == sizeof(data));
	played_record(&w, &c, &f, SLOT_LATER, chunk, 0, sizeof(data), 0);
	close(fd);
	played_close(&c);
	EVENTUALLY(lseek(f.fd, 0, SEEK_END) == sizeof(data));
	world_expect(&f, sizeof(data), 0, sizeof(data), 'g');
	EVENTUALLY(all_logs() <= (SPARE + 1) * FIRST);

	/* Many: each has its small one; they grow while there is space for that, and then go on as they are. */
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(hello(&many[i], SFS_FEATURE_GROW, f.fd), 0);
	CHECK(all_logs() <= (MANY + SPARE) * FIRST);
	for (int i = 0; i < MANY; i++) {
		played_notify(&many[i], SFS_MSG_GROW, 0, 0);
		CHECK_EQ(played_acquire(&many[i], &f, SFS_ACQ_TRY) >= 0, true);
		played_notify(&many[i], SFS_MSG_RELEASE, f.ino, f.gen);
	}
	usleep(200000);
	for (int i = 0; i < MANY; i++)
		grown += size_of(&many[i]) > FIRST;
	/* Here the small ones alone take more than there is for all. */
	CHECK_EQ(grown, 0);
	for (int i = MANY / 10; i < MANY; i++)
		played_close(&many[i]);
	EVENTUALLY(all_logs() <= (MANY / 10 + SPARE) * FIRST);
	for (int i = 0; i < MANY / 10; i++) {
		played_notify(&many[i], SFS_MSG_GROW, 0, 0);
		played_notify(&many[i], SFS_MSG_GROW, 0, 0);
	}
	usleep(300000);
	for (int i = 0; i < MANY / 10; i++)
		grown += size_of(&many[i]) > FIRST;
	CHECK(grown > 3 && grown < MANY / 10);
	CHECK(all_logs() <= LOG_SPACE + SPARE * FIRST);
	for (int i = 0; i < MANY / 10; i++)
		played_close(&many[i]);
	agent_end(&a);
	close(f.fd);
	world_end(&w);
	return 0;
}
