/* SPDX-License-Identifier: Apache-2.0 */
/* Any SPLITFS_CONFIG: what becomes a volume is exactly one entry of it, and nothing is written beyond a field. */
#include "io/io.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const modes[] = {"posix", "sync", "strict"};
	char *config = malloc(size + 3), *entry;

	CHECK(config);
	config[0] = ';';
	memcpy(config + 1, data, size);
	config[size + 1] = 0;
	strcat(config, ";");
	memset(&sfs, 0, sizeof(sfs));
	sfs_volumes_parse(config + 1);
	MUST(sfs.nvolumes >= 0 && sfs.nvolumes <= SFS_VOLUMES_MAX);
	for (int i = 0; i < sfs.nvolumes; i++) {
		const struct sfs_volume *vol = &sfs.volumes[i];

		MUST(memchr(vol->dir, 0, sizeof(vol->dir)) && memchr(vol->agents, 0, sizeof(vol->agents)));
		MUST(vol->dir[0] && vol->agents[0] && !strchr(vol->dir, ':') && vol->mode <= SFS_STRICT);
		CHECK(asprintf(&entry, ";%s:%s:%s;", modes[vol->mode], vol->dir, vol->agents) > 0);
		MUST(strstr(config, entry));
		free(entry);
	}
	free(config);
	return 0;
}
