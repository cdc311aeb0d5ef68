/* SPDX-License-Identifier: Apache-2.0 */
/* When it is expected that a file is forced twice (files/forces.h). */
#include "files/forces.h"

#include "harness.h"

static struct sfs_volume vol;

static void files(int n, bool twice)
{
	for (int i = 0; i < n; i++)
		sfs_forces_note(&vol, 1, twice);
}

int main(void)
{
	CHECK(!sfs_forces_expected(&vol));
	files(3, true);
	CHECK(!sfs_forces_expected(&vol)); /* too few yet */
	files(1, true);
	CHECK(sfs_forces_expected(&vol));
	files(1, false);
	CHECK(sfs_forces_expected(&vol));
	files(1, false);
	CHECK(!sfs_forces_expected(&vol)); /* four of six */
	files(100000, false);
	CHECK(!sfs_forces_expected(&vol));
	/* What was long ago counts for little. */
	files(64 * 3, true);
	CHECK(sfs_forces_expected(&vol));
	files(64, false);
	CHECK(!sfs_forces_expected(&vol));
	/* Never more were forced than were written, as far as the numbers go. */
	for (int i = 0; i < 1000; i++) {
		files(1, i % 3 != 0);
		CHECK((vol.forces & UINT16_MAX) <= vol.forces >> 16 && vol.forces >> 16 < SFS_FORCES_OLD);
	}
	return 0;
}
