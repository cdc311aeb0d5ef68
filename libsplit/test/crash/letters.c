/* SPDX-License-Identifier: Apache-2.0 */
/* What each letter of a workload stands for (operations.c does it). */
#include "crash/workload.h"

static const struct {
	char letter;
	const char *what;
} letters[] = {
	{'a', "append 64 bytes to A"},
	{'p', "append 4096 bytes to A"},
	{'u', "append 5000 bytes to A"},
	{'L', "append 36000 bytes to A"},
	{'o', "overwrite 100 bytes of A"},
	{'O', "overwrite 5000 bytes of A, over a border of blocks"},
	{'w', "overwrite 100 bytes at the end of A"},
	{'e', "write 200 bytes over the end of A"},
	{'h', "write behind the end of A"},
	{'v', "writev of three pieces to the end of A"},
	{'y', "writev with RWF_DSYNC to the end of A"},
	{'t', "truncate A to half"},
	{'T', "extend A by truncate"},
	{'F', "fallocate behind the end of A"},
	{'P', "punch a hole into A"},
	{'f', "fsync A"},
	{'d', "fdatasync A"},
	{'c', "close A and open it again"},
	{'k', "the service thread has a turn: relinks what is staged"},
	{'K', "the service thread has two: relinks, and commits what was left alone since"},
	{'n', "create B, write 3000 bytes"},
	{'b', "append 64 bytes to B"},
	{'B', "append 9000 bytes to B"},
	{'g', "fsync B"},
	{'r', "rename A to N, or back"},
	{'R', "rename B over A and go on with it as A"},
	{'l', "link A to L"},
	{'x', "unlink B and close it"},
	{'i', "close B and unlink it"},
	{'X', "unlink A, create it again, append 100 bytes"},
	{'U', "unlink A and append 100 bytes to what is still open"},
	{'q', "make directory E and rename A into it"},
	{'2', "append 5000 bytes to A through a second descriptor"},
	{'3', "another process with the library appends 64 bytes to A"},
	{'4', "another process overwrites 100 bytes of A"},
	{'5', "another process appends 5000 bytes to A"},
	{'6', "another process calls fsync for A"},
	{'7', "another process closes A"},
	{'8', "another process looks at A: by stat and read"},
	{'9', "the process dies, and another one looks at A before anything is recovered, and appends 64 bytes to it"},
	{'j', "open a file that another program has just made, write 100 bytes"},
	{'G', "truncate A to 4296 bytes"},
	{'D', "make a directory, or remove it"},
	{'s', "make a symbolic link, or remove it"},
	{'m', "fchmod A"},
	{'z', "append 64 bytes to A until the log is full"},
	{'Q', "other files' records fill the log to its last slot"},
	{'|', "from here on another thread writes to A, somewhere else: writes go beside others"},
	{'C', "patch 8192 bytes of A at a block"},
	{'H', "patch 9000 bytes of A at 1000"},
	{'N', "patch 5000 bytes to the end of A"},
	{'M', "patch 36864 bytes behind the end of A, at a block"},
	{'I', "patch 8192 bytes of A at its beginning and keep the buffer"},
	{'A', "strict: three ranges of A in one step, one of them at its end"},
	{'J', "strict: ranges of A and B in one step"},
	{'0', "strict: a range behind the block in which A ends, and one of B, in one step"},
	{'S', "swap 1000 bytes of A and B"},
	{'Y', "swap a block of A and one of B, which has 12000 bytes more before"},
	{'V', "take a snapshot of A and keep it"},
	{'W', "give back the snapshot or buffer that was kept first"},
	{'1', "other files have taken, and left, the rest of the staging files"},
	{'Z', "the volume is idle: the agent gets back all staging files but one"},
	{'E', "the service thread has a turn while another thread holds the lock of checkpoints"},
};

/* What all sequences are made of. */
static const char core[] = "apoOevtTPfkKcbRX";

const char *workload_core(void)
{
	return core;
}

const char *workload_letters(void)
{
	static char s[sizeof(letters) / sizeof(letters[0]) + 1];

	for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
		s[i] = letters[i].letter;
	return s;
}

const char *workload_describe(char letter)
{
	for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
		if (letters[i].letter == letter)
			return letters[i].what;
	return NULL;
}
